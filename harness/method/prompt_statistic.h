#pragma once
// Numbers about every prompt entry that are summed up query by query while the prompt is read, so that nobody has to
// keep all queries, let alone what they attend to.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/cache/entry_segment.h"

namespace kvarena {

/// What one prompt query makes of the entries that it sees, in one kv head.
struct QueryScores {
  int64_t layer = 0;
  int64_t kv_head = 0;
  int64_t position = 0;  // of the query
  int64_t group = 1;
  int64_t first = 0;              // entries that it sees: first .. first + seen - 1
  int64_t seen = 0;               //
  const float* scores = nullptr;  // [group, seen], q.k / sqrt(head_dim), rows at distance `stride`
  int64_t stride = 0;
  const float* lse = nullptr;  // [group], logarithms of the softmax denominators
};

class PromptStatistic {
 public:
  virtual ~PromptStatistic() = default;

  /// Statistics of equal ids gather the same numbers: one of them is asked for all.
  [[nodiscard]] virtual std::string id() const = 0;
  /// Numbers of an entry.
  [[nodiscard]] virtual int64_t width() const = 0;
  /// Adds one query's share to sums [entries, width] of its kv head, which start at 0. Queries come in ascending order;
  /// heads may come from different threads.
  virtual void add(const QueryScores& query, std::span<float> sums) const = 0;
};

/// What a statistic gathered in one layer.
struct GatheredStatistic {
  std::string id;
  int64_t width = 0;
  std::vector<float> sums;  // [kv_heads, n, width]
};

using PromptStatistics = std::vector<std::shared_ptr<const PromptStatistic>>;

/// Shows all statistics the queries of one pass, whose own entries are the newest of `entries`. gathered[i] belongs to
/// statistics[i]; lse [q_len, q_heads]; `n` is the prompt's length. The result does not depend on how the prompt was
/// cut into passes, nor on the number of threads. Scratch memory: 48 rows of scores a kv head.
void gather(const PromptStatistics& statistics, int64_t layer, const EntrySegment& entries, const LayerQueries& queries,
            const float* lse, int64_t n, std::vector<GatheredStatistic>& gathered);

/// e^x for x up to 88, within 2 units of the last place (below -87 as at -87). A loop over it becomes vector code,
/// which one over std::exp does not: r = x - n log 2, e^r by a polynomial (Cephes), times 2^n.
[[nodiscard]] inline float vector_exp(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  x = std::max(x, -87.0F);
  const float shifted = x * 1.44269504F + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const int32_t exponent = (std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound) + 127) << 23;
  return p * std::bit_cast<float>(exponent);
}

}  // namespace kvarena
