#pragma once
// Features that an EAGLE-3 head reads of a model: its residual stream at three places. Li et al. 2025,
// arXiv:2503.01840, section 3.1.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "harness/cache/memory.h"
#include "harness/method/method.h"

namespace kvarena {

class TappedFeatures {
 public:
  static constexpr std::array kTaps = {Tap::low, Tap::middle, Tap::high};

  TappedFeatures(int64_t layers, const LedgerPtr& ledger);
  /// A copy in another ledger.
  TappedFeatures(const TappedFeatures& other, const LedgerPtr& ledger);

  /// Takes the residual stream of a pass behind a layer, rows [count, hidden_size]; of layers that are not tapped,
  /// nothing.
  void see(int64_t layer, const float* rows, int64_t count, int64_t hidden_size);
  /// Takes tokens of an observed prompt instead, from `first` on. Throws UserError when it was read without them.
  void take(std::span<const LayerObservations> prompt, int64_t first, int64_t count, int64_t hidden_size);

  LedgerVector<float> rows;  // [count, 3 * hidden_size], the taps of a token side by side

 private:
  std::array<int64_t, kTaps.size()> layers_{};
};

/// Throws UserError where a drafter's config names other layers of a model. It may name these by their inputs, as vLLM
/// reads it, or by the outputs before, as SGLang does.
void require_taps_of(const FittedWeights& drafter, int64_t layers);

}  // namespace kvarena
