#include "harness/cache/run_attention.h"

#include <algorithm>
#include <numeric>

#include "kernels/column_sums/column_sums.h"

namespace kvarena {
namespace {

/// One query's view of a layer with a window: runs that list what it sees.
class WindowedRuns {
 public:
  WindowedRuns(const LayerShape& shape, const std::vector<kernels::HeadRun>& runs, const PositionsOf& positions)
      : shape_(shape), runs_(runs), visible_(runs.size()) {
    for (size_t h = 0; h < runs.size(); ++h) positions_.push_back(positions(static_cast<int64_t>(h)));
  }

  /// For the query at `position`; valid until the next call.
  const std::vector<kernels::HeadRun>& at(int64_t position) {
    for (size_t h = 0; h < runs_.size(); ++h) {
      const std::vector<int32_t>& all = positions_[h];
      const auto begin = std::upper_bound(all.begin(), all.end(), position - shape_.window);
      const auto end = std::upper_bound(begin, all.end(), position);
      std::vector<int32_t>& list = visible_[h];
      list.reserve(1);  // a null index would list everything
      list.resize(static_cast<size_t>(end - begin));
      std::iota(list.begin(), list.end(), static_cast<int32_t>(begin - all.begin()));
      runs_[h].index = list.data();
      runs_[h].index_count = static_cast<int64_t>(list.size());
    }
    return runs_;
  }

 private:
  const LayerShape& shape_;
  std::vector<kernels::HeadRun> runs_;
  std::vector<std::vector<int32_t>> positions_;  // [kv_heads]
  std::vector<std::vector<int32_t>> visible_;    // [kv_heads], indices of entries
};

LayerQueries one_query(const LayerQueries& queries, int64_t t) {
  return {.q = queries.q + t * queries.q_stride,
          .q_len = 1,
          .q_stride = queries.q_stride,
          .position = queries.position + t};
}

LayerShape without_window(LayerShape shape) {
  shape.window = 0;
  return shape;
}

}  // namespace

void attend_runs(const LayerShape& shape, const std::vector<kernels::HeadRun>& runs, const LayerQueries& queries,
                 bool causal, const kernels::AttentionState& state, kernels::AttentionReader* reader) {
  const kernels::AttendProblem problem{.q = queries.q,
                                       .q_len = queries.q_len,
                                       .q_token_stride = queries.q_stride,
                                       .q_head_stride = shape.head_dim,
                                       .runs = runs.data(),
                                       .dtype = shape.dtype,
                                       .causal = causal,
                                       .window = shape.window,
                                       .state = state,
                                       .reader = reader};
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

void attend_window(const LayerShape& shape, const std::vector<kernels::HeadRun>& runs, const PositionsOf& positions,
                   const LayerQueries& queries, const kernels::AttentionState& state) {
  WindowedRuns windowed(shape, runs, positions);
  const LayerShape open = without_window(shape);
  for (int64_t t = 0; t < queries.q_len; ++t) {
    const LayerQueries query = one_query(queries, t);
    const int64_t row = t * shape.q_heads;
    attend_runs(open, windowed.at(query.position), query, /*causal=*/false,
                {.out = state.out + row * shape.head_dim, .max = state.max + row, .sum = state.sum + row});
  }
}

void add_window_probabilities(const LayerShape& shape, const std::vector<kernels::HeadRun>& runs,
                              const PositionsOf& positions, const LayerQueries& queries, const float* lse, float* sums,
                              int64_t row_stride) {
  WindowedRuns windowed(shape, runs, positions);
  const LayerShape open = without_window(shape);
  std::vector<float> listed;
  for (int64_t t = 0; t < queries.q_len; ++t) {
    const LayerQueries query = one_query(queries, t);
    const std::vector<kernels::HeadRun>& seen = windowed.at(query.position);
    int64_t widest = 0;
    for (const kernels::HeadRun& run : seen) widest = std::max(widest, run.index_count);
    listed.assign(static_cast<size_t>(shape.q_heads * widest), 0.0F);
    add_run_probabilities(open, seen, query, /*causal=*/false, lse + t * shape.q_heads, listed.data(), widest);
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      const kernels::HeadRun& run = seen[h / shape.group()];
      for (int64_t i = 0; i < run.index_count; ++i) sums[h * row_stride + run.index[i]] += listed[h * widest + i];
    }
  }
}

}  // namespace kvarena
