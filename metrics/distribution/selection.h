#pragma once
// How good a selection of cache entries is, given what full attention would have looked at.

#include <cstdint>
#include <span>
#include <vector>

namespace kvarena::metrics {

/// Indices of the k largest values, ascending; of equal values the lower index is taken. k is cut to the size.
[[nodiscard]] std::vector<int64_t> top_k_indices(std::span<const double> values, int64_t k);

/// Share of one query's full attention that the selected keys carry: sum of selected weights over the sum of all.
/// `weights` [kv_len] need not be normalised; indices must be distinct and in range. 0 when all weights are 0.
[[nodiscard]] double attention_hit_rate(std::span<const double> weights, std::span<const int64_t> selected);

/// |a intersect b| / |b|: of the entries in `wanted`, the share that `selected` has (SpeContext Figure 6b with the last
/// step's selection, SpeCache Figure 2 with the true top-k). 0 for an empty `wanted`.
[[nodiscard]] double overlap(std::span<const int64_t> selected, std::span<const int64_t> wanted);

/// |a intersect b| / |a union b|; 1 for two empty sets.
[[nodiscard]] double jaccard(std::span<const int64_t> a, std::span<const int64_t> b);

}  // namespace kvarena::metrics
