#include "harness/cache/run_attention.h"

#include "kernels/column_sums/column_sums.h"

namespace kvarena {

void attend_runs(const LayerShape& shape, const std::vector<kernels::HeadRun>& runs, const LayerQueries& queries,
                 bool causal, const kernels::AttentionState& state) {
  const kernels::AttendProblem problem{.q = queries.q,
                                       .q_len = queries.q_len,
                                       .q_token_stride = queries.q_stride,
                                       .q_head_stride = shape.head_dim,
                                       .runs = runs.data(),
                                       .dtype = shape.dtype,
                                       .causal = causal,
                                       .window = shape.window,
                                       .state = state};
  kernels::attend({.problems = {&problem, 1},
                   .q_heads = shape.q_heads,
                   .kv_heads = shape.kv_heads,
                   .head_dim = shape.head_dim,
                   .scale = attention_scale(shape)});
}

void add_run_probabilities(const LayerShape& shape, const std::vector<kernels::HeadRun>& runs,
                           const LayerQueries& queries, bool causal, const float* lse, float* sums,
                           int64_t row_stride) {
  const kernels::ColumnSumsProblem problem{.q = queries.q,
                                           .q_len = queries.q_len,
                                           .q_token_stride = queries.q_stride,
                                           .q_head_stride = shape.head_dim,
                                           .lse = lse,
                                           .runs = runs.data(),
                                           .dtype = shape.dtype,
                                           .causal = causal,
                                           .window = shape.window,
                                           .sums = sums,
                                           .sums_stride = row_stride};
  kernels::column_sums({.problems = {&problem, 1},
                        .q_heads = shape.q_heads,
                        .kv_heads = shape.kv_heads,
                        .head_dim = shape.head_dim,
                        .scale = attention_scale(shape)});
}

}  // namespace kvarena
