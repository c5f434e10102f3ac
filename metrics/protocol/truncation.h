#pragma once
// LongBench's rule for prompts that are too long: keep the beginning and the end.

#include <cstdint>
#include <span>

namespace kvarena::metrics {

enum class TruncationRule {
  longbench_v1,  ///< half = max_length / 2 of each end: one token less than max_length when that is odd
  longbench_v2,  ///< the tail takes the odd token
};

/// Tokens kept, as parts of `ids`. v1 decodes head and tail apart and joins the texts; v2 decodes them as one. The tail
/// is empty when nothing had to be cut.
struct MiddleTruncation {
  std::span<const int64_t> head, tail;
};

[[nodiscard]] MiddleTruncation truncate_middle(std::span<const int64_t> ids, int64_t max_length, TruncationRule rule);

}  // namespace kvarena::metrics
