#include "harness/method/tapped_features.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/method/drafter_file.h"

namespace kvarena {

TappedFeatures::TappedFeatures(int64_t layers, const LedgerPtr& ledger) : rows(LedgerAllocator<float>(ledger)) {
  for (size_t tap = 0; tap < kTaps.size(); ++tap) layers_[tap] = tapped_layer(kTaps[tap], layers);
}

TappedFeatures::TappedFeatures(const TappedFeatures& other, const LedgerPtr& ledger)
    : rows(other.rows.begin(), other.rows.end(), LedgerAllocator<float>(ledger)), layers_(other.layers_) {}

void TappedFeatures::see(int64_t layer, const float* from, int64_t count, int64_t hidden_size) {
  const auto width = static_cast<int64_t>(kTaps.size()) * hidden_size;
  for (size_t tap = 0; tap < kTaps.size(); ++tap) {
    if (layers_[tap] != layer) continue;
    rows.resize(static_cast<size_t>(count * width));
    float* const to = rows.data() + static_cast<int64_t>(tap) * hidden_size;
    for (int64_t i = 0; i < count; ++i) std::copy_n(from + i * hidden_size, hidden_size, to + i * width);
  }
}

void TappedFeatures::take(std::span<const LayerObservations> prompt, int64_t first, int64_t count,
                          int64_t hidden_size) {
  for (const int64_t layer : layers_) {
    const auto seen = layer < std::ssize(prompt) ? std::ssize(prompt[static_cast<size_t>(layer)].residual) : 0;
    if (seen < (first + count) * hidden_size) {
      fail({.place = "features of the prompt",
            .found = "a prompt whose hidden states nobody kept (it begins with a stored cache)",
            .expected = fmt::format("those behind layer {}", layer),
            .action = "read the prompt from its first token"});
    }
    see(layer, prompt[static_cast<size_t>(layer)].residual.data() + first * hidden_size, count, hidden_size);
  }
}

void require_taps_of(const FittedWeights& drafter, int64_t layers) {
  const auto named_as = [layers](int64_t further) {
    const auto layer = [&](Tap tap) { return tapped_layer(tap, layers) + further; };
    return fmt::format("[{},{},{}]", layer(Tap::low), layer(Tap::middle), layer(Tap::high));
  };
  const std::string outputs = named_as(0), inputs = named_as(1);
  for (const char* key : {"eagle_aux_hidden_state_layer_ids", "eagle_config.eagle_aux_hidden_state_layer_ids"}) {
    const auto named = drafter.metadata.find(key);
    if (named == drafter.metadata.end() || named->second == "null" || named->second == "[]") continue;
    if (named->second == inputs || named->second == outputs) continue;
    fail({.place = DrafterFile(drafter).place(key),
          .found = named->second,
          .expected = fmt::format("{} or {}, the layers of EAGLE-3 in a model of {}", inputs, outputs, layers),
          .action = "take a head that was trained on these"});
  }
}

}  // namespace kvarena
