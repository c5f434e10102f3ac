#include "harness/device/layer_placement.h"

#include <fmt/format.h>

#include "harness/model/architectures/architecture.h"
#include "harness/model/attention_projections.h"
#include "harness/model/latent_rows.h"

namespace kvarena::device {
namespace {

/// The division in which every device takes as many layers as leave room for `tokens`, the first devices first.
std::optional<LayerPlacement> filled(const ModelBytes& model, std::span<const FreeDevice> devices, int64_t tokens) {
  LayerPlacement made{.devices = {}, .tokens = tokens};
  size_t layer = 0;
  for (const FreeDevice& on : devices) {
    int64_t weights = layer == 0 ? model.embedding : 0, entry = 0;
    for (const bool first = layer == 0; layer < model.layers.size(); ++layer) {
      weights += model.layers[layer].weights;
      entry += model.layers[layer].entry;
      const bool last = layer + 1 == model.layers.size();
      const int64_t head = last && !(model.tied && first) ? model.head : 0;
      if (weights + head > on.bytes || room_for_caches(on.bytes - weights - head) / entry < tokens) break;
      made.devices.push_back(on.device);
    }
  }
  if (layer < model.layers.size()) return std::nullopt;
  return made;
}

/// Bytes that a tensor below `prefix` takes: routers are kept in float32, a latent's expansion with the width of its
/// cached entries (device_weights.h).
int64_t bytes_on_device(const TensorInfo& info, const std::string& prefix, const ModelConfig& config, DType dtype) {
  const std::string router = fmt::format("{}{}.", prefix, architecture_of(config).tensors.router);
  int64_t elements = info.elements();
  if (config.is_latent() && LatentExpansion::is_part(info.name)) {
    elements = elements / config.latent.kv_lora_rank * config.latent.width();
  }
  return elements * kernels::size_of(info.name.starts_with(router) ? DType::f32 : dtype);
}

}  // namespace

int64_t room_for_caches(int64_t free_bytes) { return free_bytes / 100 * 85; }

ModelBytes bytes_of(const ModelConfig& config, const Checkpoint& checkpoint, const TransformerOptions& options) {
  const TensorNames& names = architecture_of(config).tensors;
  const auto bytes_below = [&](const std::string& prefix) {
    int64_t bytes = 0;
    for (const TensorInfo& info : checkpoint.tensors()) {
      if (info.name.starts_with(prefix)) bytes += bytes_on_device(info, prefix, config, options.weights.value());
    }
    return bytes;
  };
  ModelBytes bytes{.layers = {},
                   .embedding = bytes_below(fmt::format("{}.", names.embedding)),
                   .head = 0,
                   .tied = config.tie_embeddings};
  bytes.head = bytes.tied ? bytes.embedding : bytes_below(fmt::format("{}.", names.head));
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    bytes.layers.push_back({.weights = bytes_below(fmt::format("{}{}.", names.layer, layer)),
                            .entry = cache_shape(config, layer, options.cache).entry_bytes()});
  }
  return bytes;
}

std::optional<LayerPlacement> divide_layers(const ModelBytes& model, std::span<const FreeDevice> devices) {
  int64_t fits = 0, too_many = int64_t{1} << 40;
  while (too_many - fits > 1) {
    const int64_t tokens = fits + (too_many - fits) / 2;
    (filled(model, devices, tokens) ? fits : too_many) = tokens;
  }
  if (fits == 0) return std::nullopt;
  return filled(model, devices, fits);
}

std::optional<LayerPlacement> fewest_devices(const ModelBytes& model, std::span<const FreeDevice> devices,
                                             int64_t tokens) {
  for (size_t count = 1; count < devices.size(); ++count) {
    auto found = divide_layers(model, devices.first(count));
    if (found && found->tokens >= tokens) return found;
  }
  return divide_layers(model, devices);
}

}  // namespace kvarena::device
