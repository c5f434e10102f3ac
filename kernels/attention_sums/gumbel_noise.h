#pragma once
// Gumbel noise that is a function of a key and an index alone, at the price of a load a draw.
//
// Draws are read from a table that holds each of 65,536 equally likely quantiles once, in a shuffled order; every 512
// indices of a key begin anew at a place that both choose. So marginals are those of the distribution to 2^-16, and two
// rows share an order of draws only where their places overlap.

#include <cstdint>

namespace kvarena::kernels {

/// Indices that are drawn side by side.
inline constexpr int64_t kNoiseRun = 512;

/// e^G of indices run * kNoiseRun ... of a key, G standard Gumbel noise: 1 / E for an exponential E of mean 1. Valid
/// for kNoiseRun floats, for ever. From 0.085 to 131,071.
[[nodiscard]] const float* gumbel_factors(uint64_t key, int64_t run);

/// e^G of one index.
[[nodiscard]] float gumbel_factor(uint64_t key, int64_t index);

}  // namespace kvarena::kernels
