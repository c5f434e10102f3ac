#pragma once
// A copy of a segment elsewhere, on a device, which can compute there what would else be computed here.

#include <cstdint>
#include <memory>
#include <vector>

#include "harness/cache/segment.h"

namespace kvarena {

/// Kept by whoever made it (CacheTwin); segments know it as long as it lives.
class EntryCopy {
 public:
  virtual ~EntryCopy() = default;
  /// Segment::add_probabilities() of a segment that is what the copy was at `time`, or of the listed entries alone
  /// ([kv_heads] ascending, null for all), of which a column of `sums` is a place in the list. Where the copy is of
  /// another time nothing is added and false returned.
  [[nodiscard]] virtual bool add_probabilities(uint64_t time, const LayerQueries& queries, bool causal,
                                               const std::vector<std::vector<int32_t>>* listed, const float* lse,
                                               float* sums, int64_t row_stride) = 0;
};

/// What a segment knows of its copy.
struct CopyMark {
  std::weak_ptr<EntryCopy> copy;
  uint64_t time = 0;

  /// Whether the copy has added them.
  [[nodiscard]] bool add_probabilities(const LayerQueries& queries, bool causal,
                                       const std::vector<std::vector<int32_t>>* listed, const float* lse, float* sums,
                                       int64_t row_stride) const {
    const std::shared_ptr<EntryCopy> there = copy.lock();
    return there != nullptr && there->add_probabilities(time, queries, causal, listed, lse, sums, row_stride);
  }
};

}  // namespace kvarena
