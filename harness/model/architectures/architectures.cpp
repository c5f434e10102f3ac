// The table of all families.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "harness/core/error.h"
#include "harness/model/architectures/architecture.h"
#include "harness/model/architectures/families.h"

namespace kvarena {
namespace {

constexpr std::array kArchitectures = {
    &kLlama, &kMistral, &kMixtral, &kQwen2,   &kQwen3, &kQwen3Moe, &kGemma3,    &kDeepSeekV2, &kDeepSeekV3, &kGptOss,
    &kPhi3,  &kGlm4,    &kGranite, &kSmolLm3, &kOlmo2, &kLlama4,   &kQwen3Next, &kQwen35,     &kQwen35Moe};

/// The family whose name begins most like `name`, by three letters or more; "" where none does.
std::string_view nearest_family(std::string_view name, const std::vector<std::string_view>& known) {
  const auto alike = [&](std::string_view one) { return std::ranges::mismatch(one, name).in1 - one.begin(); };
  const auto nearest = std::ranges::max_element(known, {}, alike);
  return alike(*nearest) < 3 ? std::string_view() : *nearest;
}

}  // namespace

std::span<const Architecture* const> architectures() { return kArchitectures; }

const Architecture& find_architecture(const std::string& place, const std::string& name,
                                      std::string_view Architecture::*by) {
  std::vector<std::string_view> known;
  for (const Architecture* one : kArchitectures) {
    if ((one->*by).empty()) continue;
    if (one->*by == name) return *one;
    known.push_back(one->*by);
  }
  const std::string_view nearest = nearest_family(name, known);
  fail({.place = place,
        .found = fmt::format("\"{}\"", name),
        .expected = fmt::format("one of {}", fmt::join(known, ", ")),
        .action = fmt::format("{}the forward pass of another family differs; docs/models.md says how one is added",
                              nearest.empty() ? "" : fmt::format("the nearest is {}; ", nearest))});
}

const Architecture& architecture_of(const ModelConfig& config) {
  const auto* const found =
      std::ranges::find(kArchitectures, config.architecture, [](const Architecture* one) { return one->name; });
  KVARENA_ASSERT(found != kArchitectures.end(), fmt::format("architecture {}", config.architecture));
  return **found;
}

const Architecture* gguf_architecture(std::string_view word) {
  const auto* const found = std::ranges::find(kArchitectures, word, [](const Architecture* one) { return one->gguf; });
  return word.empty() || found == kArchitectures.end() ? nullptr : *found;
}

std::vector<bool> layers_of_type(const JsonSection& root, std::string_view word, int64_t layers) {
  const std::vector<std::string> types = root.strings("layer_types");
  if (!types.empty() && std::ssize(types) != layers) {
    root.fail_value("layer_types", fmt::format("a type for each of {} layers", layers));
  }
  std::vector<bool> chosen;
  for (const std::string& type : types) {
    chosen.push_back(type == word);
    if (!chosen.back() && type != "full_attention") {
      root.fail_value("layer_types", fmt::format("full_attention or {} for each layer", word));
    }
  }
  return chosen;
}

std::vector<bool> all_but_each_last(int64_t interval, int64_t layers) {
  std::vector<bool> chosen;
  for (int64_t layer = 0; layer < layers; ++layer) chosen.push_back((layer + 1) % interval != 0);
  return chosen;
}

void read_sliding_window(const JsonSection& root, int64_t first_layer, ModelConfig& config) {
  config.sliding_window = std::max<int64_t>(0, root.integer("sliding_window", 0));
  if (config.sliding_window == 0) return;
  config.sliding_layers = layers_of_type(root, "sliding_attention", config.layers);
  for (int64_t layer = std::ssize(config.sliding_layers); layer < config.layers; ++layer) {
    config.sliding_layers.push_back(layer >= first_layer);
  }
}

void leave_unrotated(int64_t interval, ModelConfig& config) {
  config.unrotated_layers = all_but_each_last(interval, config.layers);
  config.unrotated_layers.flip();
}

void read_attention_biases(const JsonSection& root, bool unless_said, ModelConfig& config) {
  config.qkv_bias = config.output_bias = root.boolean("attention_bias", unless_said);
}

void read_unrotated_layers(const JsonSection& root, ModelConfig& config) {
  const int64_t interval = root.integer("no_rope_layer_interval", kUnrotatedInterval);
  if (interval < 1) root.fail_value("no_rope_layer_interval", "a number of layers");
  leave_unrotated(interval, config);
  const std::vector<int64_t> rotated = root.integers("no_rope_layers");
  if (rotated.empty()) return;
  if (std::ssize(rotated) != config.layers) {
    root.fail_value("no_rope_layers", fmt::format("a number for each of {} layers", config.layers));
  }
  for (size_t layer = 0; layer < rotated.size(); ++layer) config.unrotated_layers[layer] = rotated[layer] == 0;
}

}  // namespace kvarena
