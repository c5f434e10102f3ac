#pragma once
// Internal: the table of a path and the reference.

#include "kernels/attention_sums/attention_sums.h"
#include "kernels/common/dispatch.h"

namespace kvarena::kernels {

struct AttentionSumsTable {
  void (*probabilities)(const ProbabilityRows& rows, float* sums, int64_t stride);
  void (*moments)(const ProbabilityRows& rows, float* sums, float* squares);
  /// work: floats for the visible list positions of any row, in whole vectors.
  void (*perturbed)(const ProbabilityRows& rows, const uint64_t* keys, float tau, float* sums, float* work);
};
KVARENA_DECLARE_TABLE(AttentionSumsTable, attention_sums_table);

void add_probabilities_reference(const ProbabilityRows& rows, float* sums, int64_t stride);
void add_moments_reference(const ProbabilityRows& rows, float* sums, float* squares);
void add_perturbed_reference(const ProbabilityRows& rows, const uint64_t* keys, float tau, float* sums);

}  // namespace kvarena::kernels
