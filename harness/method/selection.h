#pragma once
// Selection of the entries that a budget keeps, given their scores.

#include <cstdint>
#include <span>
#include <vector>

namespace kvarena {

/// Entries that are not candidates for eviction.
struct Protection {
  int64_t sinks = 0;   // first entries of the sequence
  int64_t recent = 0;  // newest entries
};

/// Indices kept of n = scores.size() entries, ascending: the protected ones and the best of the rest, `budget` in all.
/// Larger score first, equal scores by LOWER index. Protection that exceeds the budget gives way, recent entries
/// first, then sinks. budget >= n keeps everything. Scores must not be NaN.
[[nodiscard]] std::vector<int32_t> select_best(std::span<const float> scores, int64_t budget, Protection protection);

}  // namespace kvarena
