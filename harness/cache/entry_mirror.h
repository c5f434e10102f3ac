#pragma once
// A copy of a segment elsewhere, on a device, which can compute there what would else be computed here.

#include <cstdint>
#include <vector>

#include "harness/cache/segment.h"

namespace kvarena {

/// Lent to a segment by whoever keeps the copy, for as long as both are alike (CacheMirror).
class EntryMirror {
 public:
  virtual ~EntryMirror() = default;
  /// Segment::add_probabilities(), or the same of the listed entries alone ([kv_heads] ascending, null for all), of
  /// which a column of `sums` is a place in the list. False where it cannot say; then nothing was added.
  [[nodiscard]] virtual bool add_probabilities(const LayerQueries& queries, bool causal,
                                               const std::vector<std::vector<int32_t>>* listed, const float* lse,
                                               float* sums, int64_t row_stride) = 0;
};

}  // namespace kvarena
