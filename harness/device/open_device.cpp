#include "harness/device/open_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "harness/core/error.h"
#include "harness/core/terminal.h"
#include "harness/device/device_offload.h"
#include "harness/device/layer_placement.h"
#include "harness/storage/device_tiers.h"

namespace kvarena::device {
namespace {

std::vector<FreeDevice> free_devices(const std::string& place, std::vector<int64_t> numbers) {
  const std::string reason = kernels::cuda_absent();
  if (!reason.empty())
    fail({.place = place, .found = reason, .expected = "a CUDA device", .action = "\"cpu\" is always there"});
  const int64_t count = kernels::cuda_devices();
  if (numbers.empty()) {
    numbers.resize(static_cast<size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
  }
  std::vector<FreeDevice> devices;
  for (const int64_t number : numbers) {
    const auto twice = std::ranges::count(numbers, number) > 1;
    if (number < 0 || number >= count || twice) {
      fail(
          {.place = place,
           .found = fmt::format("device {}{}", number, twice ? " twice" : ""),
           .expected = count == 1 ? "device 0, the only one" : fmt::format("each of devices 0 to {} once", count - 1)});
    }
    const kernels::CudaDeviceScope there(number);
    devices.push_back({.device = number, .bytes = kernels::cuda_free_bytes()});
  }
  return devices;
}

[[noreturn]] void refuse(const std::string& place, const ModelConfig& config, const std::string& found) {
  fail({.place = place,
        .found = found,
        .expected = fmt::format("{} in the memory of devices", config.name),
        .action = "smaller weights (\"bf16\"), a smaller model or more devices may fit"});
}

std::vector<int64_t> placed(const std::string& place, const ModelConfig& config, const Checkpoint& checkpoint,
                            const TransformerOptions& options, const std::vector<int64_t>& numbers) {
  const std::vector<FreeDevice> devices = free_devices(place, numbers);
  const ModelBytes model = bytes_of(config, checkpoint, options);
  const std::optional<LayerPlacement> found =
      numbers.empty() ? fewest_devices(model, devices, std::min(config.max_position, kTokensOnFewest))
                      : divide_layers(model, devices);
  if (!found) {
    int64_t weights = model.embedding + (model.tied ? 0 : model.head);
    for (const ModelBytes::Layer& layer : model.layers) weights += layer.weights;
    std::string free;
    for (const FreeDevice& on : devices) free += fmt::format(", {} free on device {}", bytes_text(on.bytes), on.device);
    refuse(place, config, fmt::format("{} of weights{}", bytes_text(weights), free));
  }
  return found->devices;
}

/// "layers 0 to 15 on device 0, 16 to 31 on device 1"
std::string in_words(const std::vector<int64_t>& devices) {
  std::string words = "layers";
  for (size_t begin = 0, end = 0; begin < devices.size(); begin = end) {
    while (end < devices.size() && devices[end] == devices[begin]) ++end;
    words += fmt::format("{} {} to {} on device {}", begin == 0 ? "" : ",", begin, end - 1, devices[begin]);
  }
  return words;
}

}  // namespace

std::unique_ptr<Offload> open_device(const std::string& place, const ModelConfig& config, const Checkpoint& checkpoint,
                                     const TransformerOptions& options, const std::vector<int64_t>& devices) {
  const std::vector<int64_t> of_layers = placed(place, config, checkpoint, options, devices);
  try {
    auto opened = std::make_unique<DeviceOffload>(DeviceModel(config, checkpoint, options, of_layers));
    if (of_layers.front() != of_layers.back()) fmt::print(stderr, "note: {}: {}\n", place, in_words(of_layers));
    return opened;
  } catch (const UserError&) {
    throw;
  } catch (const std::runtime_error& error) {  // of CUDA
    refuse(place, config, error.what());
  }
}

std::unique_ptr<storage::Storage> pinned_memory(int64_t capacity) {
  return std::make_unique<storage::PinnedStorage>(capacity);
}

}  // namespace kvarena::device
