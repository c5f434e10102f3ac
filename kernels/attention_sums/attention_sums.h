#pragma once
// What may be summed up from the probabilities that attention shows its reader (attention.h), entry by entry.
//
// Every sum grows token by token, ascending, in float32, and of a token head by head: a prompt handed over in pieces
// (in order) gives the bits of one call, on any number of threads. List position p of the rows' run is element p of a
// sum.
//
// Cost: per row and visible entry a fused product for probabilities, two for moments, about 50 operations for perturbed
// ones; rows come from the second-level cache.

#include <cstdint>

#include "kernels/attention/attention.h"

namespace kvarena::kernels {

/// sums[g * stride + p] += the probability of query head g of the group, for each token.
void add_probabilities(const AttentionRows& rows, float* sums, int64_t stride);

/// With m the mean of a token's probabilities over the group: sums[p] += m, squares[p] += m * m.
void add_moments(const AttentionRows& rows, float* sums, float* squares);

/// Draws of exponential_noise() for one row.
struct NoiseKey {
  uint32_t first = 0, second = 0;
};

/// Exponentially distributed (mean 1) and a function of the key and the index alone: its negative logarithm is standard
/// Gumbel noise. From 6e-8 to 16.6.
[[nodiscard]] float exponential_noise(NoiseKey key, uint32_t index);

/// sums[p] += softmax over the visible p of (log probability + Gumbel noise) / tau, row by row. keys [tokens * group],
/// noise of list position p is draw p; null for none. Where a probability is too small for a float the entry gets
/// nothing.
void add_perturbed(const AttentionRows& rows, const NoiseKey* keys, float tau, float* sums);

}  // namespace kvarena::kernels
