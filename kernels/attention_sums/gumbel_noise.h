#pragma once
// Gumbel noise that is a function of a key and an index alone, at the price of a load a draw.
//
// Draws are read from a table that holds each of 65,536 equally likely quantiles once, in a shuffled order; every 512
// indices of a key begin anew at a place that both choose. So marginals are those of the distribution to 2^-16, and two
// rows share an order of draws only where their places overlap.

#include <cstdint>
#include <span>

namespace kvarena::kernels {

/// Indices that are drawn side by side.
inline constexpr int64_t kNoiseRun = 512;

inline constexpr uint64_t kGumbelQuantiles = 65536;

/// SplitMix64's value number `index` of a sequence.
[[nodiscard]] constexpr uint64_t mixed(uint64_t sequence, uint64_t index) {
  uint64_t x = sequence + (index + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// e^G of indices run * kNoiseRun ... of a key, G standard Gumbel noise: 1 / E for an exponential E of mean 1. Valid
/// for kNoiseRun floats, for ever. From 0.085 to 131,071.
[[nodiscard]] const float* gumbel_factors(uint64_t key, int64_t run);

/// The table that gumbel_factors() reads: its floats lie from gumbel_place() on.
[[nodiscard]] std::span<const float> gumbel_table();
[[nodiscard]] constexpr uint64_t gumbel_place(uint64_t key, int64_t run) {
  return mixed(key, static_cast<uint64_t>(run)) % kGumbelQuantiles;
}

/// e^G of one index.
[[nodiscard]] float gumbel_factor(uint64_t key, int64_t index);

}  // namespace kvarena::kernels
