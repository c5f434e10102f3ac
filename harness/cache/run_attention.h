#pragma once
// Calls of the run kernels on behalf of segments whose entries are head runs: dense, ragged, indexed.

#include <vector>

#include "harness/cache/segment.h"

namespace kvarena {

/// `shape.kv_heads` runs; for per-query-head views the caller passes q_heads runs and a shape with kv_heads = q_heads.
void attend_runs(const LayerShape& shape, const std::vector<kernels::HeadRun>& runs, const LayerQueries& queries,
                 bool causal, const kernels::AttentionState& state);

/// Segment::add_probabilities for runs.
void add_run_probabilities(const LayerShape& shape, const std::vector<kernels::HeadRun>& runs,
                           const LayerQueries& queries, bool causal, const float* lse, float* sums, int64_t row_stride);

}  // namespace kvarena
