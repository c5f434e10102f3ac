#pragma once
// A copy of one layer's newest segment elsewhere, which can compute there what would else be computed here.

#include <cstdint>

#include "harness/cache/segment.h"

namespace kvarena {

/// Kept by whoever made it (CacheTwin); segments know it as long as it lives.
class EntryCopy {
 public:
  virtual ~EntryCopy() = default;
  /// Segment::add_probabilities() of a segment that is what the copy was at `time`. Where the copy is of another time,
  /// or holds more than that segment, nothing is added and false returned.
  [[nodiscard]] virtual bool add_probabilities(uint64_t time, const LayerQueries& queries, bool causal,
                                               const float* lse, float* sums, int64_t row_stride) = 0;
};

}  // namespace kvarena
