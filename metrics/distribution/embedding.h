#pragma once
// Similarity of answers through sentence embeddings (EvicPress; sentence-transformers' conventions).

#include <cstdint>
#include <span>
#include <vector>

namespace kvarena::metrics {

/// a.b / (|a| |b|) in double; 0 when either is all zero. Throws InternalError for different lengths.
[[nodiscard]] double cosine_similarity(std::span<const double> a, std::span<const double> b);
[[nodiscard]] double cosine_similarity(std::span<const float> a, std::span<const float> b);

/// Mean of the token states [tokens, hidden_size] (row-major) whose mask is not 0: sum(h m) / max(sum m, 1e-9).
/// Throws InternalError when states are not mask.size() * hidden_size.
[[nodiscard]] std::vector<double> mean_pooling(std::span<const double> states, std::span<const int64_t> mask,
                                               int64_t hidden_size);
[[nodiscard]] std::vector<double> mean_pooling(std::span<const float> states, std::span<const int64_t> mask,
                                               int64_t hidden_size);

/// v / max(|v|, 1e-12)
[[nodiscard]] std::vector<double> l2_normalized(std::vector<double> v);

}  // namespace kvarena::metrics
