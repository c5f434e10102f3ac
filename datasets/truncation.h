#pragma once
// Truncation on the model's own tokens.

#include <cstdint>
#include <span>

#include "datasets/workload.h"

namespace kvarena::datasets {

/// Ids that are kept: the first `head` and the last `tail` of n. head + tail == n means nothing is cut.
struct MiddleCut {
  size_t head = 0;
  size_t tail = 0;
};

/// middle_halves: max/2 and max/2 (an odd limit loses one token); middle_joined: max/2 and max - max/2.
/// n <= max_length keeps everything as head.
[[nodiscard]] MiddleCut middle_cut(size_t n, int64_t max_length, TruncationRule rule);

/// Shortens one message of `sample` by `rule` when the prompt has more than `max_tokens` tokens, and moves the
/// question's position with the text: the last message, by context_end the one with the question's start. A question
/// that began in the removed part begins at the seam. Other messages are counted and stay whole. Always records the
/// count before. `none` only counts.
void truncate_prompt(Sample& sample, TruncationRule rule, int64_t max_tokens, const TokenCounter& tokens);

}  // namespace kvarena::datasets
