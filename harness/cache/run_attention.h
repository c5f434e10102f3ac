#pragma once
// Calls of the run kernels on behalf of segments whose entries are head runs: dense, ragged, indexed.

#include <functional>
#include <vector>

#include "harness/cache/segment.h"

namespace kvarena {

/// `shape.kv_heads` runs; for per-query-head views the caller passes q_heads runs and a shape with kv_heads = q_heads.
/// `reader`, when not null, sees what the queries attend to.
void attend_runs(const LayerShape& shape, const std::vector<kernels::HeadRun>& runs, const LayerQueries& queries,
                 bool causal, const kernels::AttentionState& state, kernels::AttentionReader* reader = nullptr);

/// Segment::add_probabilities for runs.
void add_run_probabilities(const LayerShape& shape, const std::vector<kernels::HeadRun>& runs,
                           const LayerQueries& queries, bool causal, const float* lse, float* sums, int64_t row_stride);

/// Original positions of a head's entries, ascending.
using PositionsOf = std::function<std::vector<int32_t>(int64_t kv_head)>;

/// The same two for a layer with a sliding window whose entries are no longer the newest ones without a gap (ragged, or
/// in front of the tail): a query sees entries by their original positions, the last `shape.window` up to its own.
void attend_window(const LayerShape& shape, const std::vector<kernels::HeadRun>& runs, const PositionsOf& positions,
                   const LayerQueries& queries, const kernels::AttentionState& state);
void add_window_probabilities(const LayerShape& shape, const std::vector<kernels::HeadRun>& runs,
                              const PositionsOf& positions, const LayerQueries& queries, const float* lse, float* sums,
                              int64_t row_stride);

}  // namespace kvarena
