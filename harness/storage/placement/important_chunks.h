#pragma once
// Tokens of a stored context that a query needs, as scored by a few heads, and the chunks that hold them.
// Chen et al. 2025, FAST, pages 187-201 (IMPRESS).

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kvarena::storage {

/// Jaccard similarity that two random sets of `keep` * n of n tokens have on average: keep / (2 - keep).
[[nodiscard]] double random_similarity(double keep);
/// Probe heads agree when their mean pairwise similarity is above this: random_similarity(keep) ^ alpha.
[[nodiscard]] double agreement_threshold(double keep, double alpha);

/// Indexes of the `count` largest scores, ascending; ties go to the earlier token.
[[nodiscard]] std::vector<int64_t> top_tokens(std::span<const float> scores, int64_t count);
/// |a and b| / |a or b| of ascending lists; 1 when both are empty.
[[nodiscard]] double jaccard(std::span<const int64_t> a, std::span<const int64_t> b);

/// Important tokens that hold for all heads of a layer, from `scores` [probe_heads, tokens]: the `keep` * tokens that
/// most probe heads vote for, ties by mean score, then the earlier token. Nothing when the probe heads do not agree:
/// then every head's keys have to be read.
[[nodiscard]] std::optional<std::vector<int64_t>> shared_important(std::span<const float> scores, int64_t probe_heads,
                                                                   double keep, double alpha);

/// Chunks of `chunk` tokens that hold at least one important token, ascending.
[[nodiscard]] std::vector<int64_t> chunks_holding(std::span<const int64_t> important, int64_t chunk);

/// Key and value vectors of one layer that are read to know and load `important` of `tokens` tokens.
struct ImportantReads {
  int64_t all_heads = 0;  // every head's keys, then its important values
  int64_t probed = 0;     // probe heads' keys, then important keys and values of all heads
};
[[nodiscard]] ImportantReads important_reads(int64_t heads, int64_t probe_heads, int64_t tokens, int64_t important);

}  // namespace kvarena::storage
