#pragma once
// Sums over the probabilities that attention passes to its reader (attention.h), entry by entry.
//
// Every sum grows token by token, ascending, in float32, and of a token head by head: a prompt handed over in pieces
// (in order) gives the bits of one call, on any number of threads. List position p of the rows' run is element p of a
// sum.
//
// Cost: per row and visible entry a fused product for probabilities, two for moments, four operations for perturbed
// ones (and two powers where tau is not 1); rows come from the second-level cache.

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/query_sums.h"

namespace kvarena::kernels {

/// The rows of token rows.first_token + t alone.
[[nodiscard]] ProbabilityRows token_rows(const ProbabilityRows& rows, int64_t t);

/// sums[g * stride + p] += the probability of query head g of the group, for each token.
void add_probabilities(const ProbabilityRows& rows, float* sums, int64_t stride);

/// With m the mean of a token's probabilities over the group: sums[p] += m, squares[p] += m * m.
void add_moments(const ProbabilityRows& rows, float* sums, float* squares);

/// For each token t that counts, at `position` + t, with m as above:  words[word * stride + p] += bit  for the entries
/// p up to its own of which m < 1 / (entries up to its own), word and bit those of its position. Each bit is added once
/// and must not be there.
void mark_ignored(const ProbabilityRows& rows, const IgnoredQueries& queries, int64_t position, float* words,
                  int64_t stride);

/// sums[p] += softmax over the visible p of (log probability + Gumbel noise) / tau, row by row. keys [tokens * group],
/// a key of gumbel_noise.h for each row, whose index p list position p has; null for no noise. Where a probability is
/// too small for a float the entry gets nothing.
void add_perturbed(const ProbabilityRows& rows, const uint64_t* keys, float tau, float* sums);

/// Adds the sum that `what` describes over the rows of tokens position, position + 1, ...: to [group, stride] for
/// probabilities, else to [width, stride] of the rows' kv head.
void add_sum(const SumOfQueries& what, const ProbabilityRows& rows, int64_t position, float* sums, int64_t stride);

}  // namespace kvarena::kernels
