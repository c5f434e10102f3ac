#pragma once
// Values of entries that leave, merged into entries that stay.

#include <cstdint>
#include <span>
#include <vector>

#include "harness/cache/entry_segment.h"
#include "harness/core/parameters.h"

namespace kvarena {

/// Merges the value of every entry e that leaves into the entry t that stays whose key is the most similar:
///   v_t <- (v_t + sum over e of w_e v_e) / (1 + sum over e of w_e),  w_e = c |v_e| / (|v_e| + |v_t|)
/// c is the cosine of both keys, 0 where it is negative or below `merge_similarity`, or not among the head's most
/// similar `merge_share`. Keys stay as they are. kvpress's MergingPress, after Bolya et al. 2023, arXiv:2210.09461, and
/// Wan et al. 2024, D2O, arXiv:2406.13035.
class Merging {
 public:
  void parameters(ParameterVisitor& p);
  [[nodiscard]] bool active() const { return merge_; }
  /// Changes values of entries that are `kept` (ascending indices for each kv head). The others still leave.
  void apply(EntrySegment& entries, std::span<const std::vector<int32_t>> kept) const;

 private:
  bool merge_ = false;
  double similarity_ = 0;
  double share_ = 1;
};

}  // namespace kvarena
