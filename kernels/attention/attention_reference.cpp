#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/attention_paths.h"

namespace kvarena::kernels {

void merge_row_reference(float* out, float* max, float* sum, const float* from_out, float from_max, float from_sum,
                         int64_t value_dim) {
  if (from_sum == 0) return;
  const float m = std::fmax(*max, from_max);
  const double a = std::exp(static_cast<double>(*max) - m), b = std::exp(static_cast<double>(from_max) - m);
  for (int64_t c = 0; c < value_dim; ++c) out[c] = static_cast<float>(out[c] * a + from_out[c] * b);
  *sum = static_cast<float>(*sum * a + from_sum * b);
  *max = m;
}

std::vector<float> attention_entry_row(CellKind kind, const HeadRun& run, DType dtype, int64_t dim, int64_t entry) {
  std::vector<float> row(static_cast<size_t>(dim));
  const bool keys = kind == CellKind::keys;
  const int64_t packed = keys ? run.packed_key_count : run.packed_value_count;
  if (entry < packed) {
    decode_rows(keys ? *run.packed_keys : *run.packed_values, entry, 1, row.data(), dim);
    return row;
  }
  for (int64_t c = 0; c < dim; ++c) {
    const void* cells = keys ? run.keys : run.values;
    row[static_cast<size_t>(c)] = load_element(cells, dtype, cell_offset(kind, dim, entry - packed, c));
  }
  return row;
}

namespace {

/// Scores of the list positions that a query sees.
std::vector<double> query_scores(const AttendArgs& args, const AttendProblem& problem, const HeadRun& run,
                                 const Visible& visible, const float* q) {
  std::vector<double> scores;
  for (int64_t p = visible.low; p < visible.high; ++p) {
    const int64_t entry = run.index != nullptr ? run.index[p] : p;
    const std::vector<float> key = attention_entry_row(CellKind::keys, run, problem.dtype, args.head_dim, entry);
    double score = 0;
    for (int64_t c = 0; c < args.head_dim; ++c) score += static_cast<double>(q[c]) * key[static_cast<size_t>(c)];
    scores.push_back(score * args.scale + (run.bias != nullptr ? run.bias[p] : 0));
  }
  return scores;
}

}  // namespace

void attend_query_reference(const AttendArgs& args, const AttendProblem& problem, int64_t t, int64_t h) {
  const int64_t value_dim = args.value_dim == 0 ? args.head_dim : args.value_dim;
  const HeadRun& run = problem.runs[h / (args.q_heads / args.kv_heads)];
  const Visible visible = visible_range(problem, run, t);
  if (visible.high <= visible.low) return;
  const float* q = problem.q + t * problem.q_token_stride + h * problem.q_head_stride;

  const std::vector<double> scores = query_scores(args, problem, run, visible, q);
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::vector<double> out(static_cast<size_t>(value_dim));
  for (int64_t p = visible.low; p < visible.high; ++p) {
    const int64_t entry = run.index != nullptr ? run.index[p] : p;
    const std::vector<float> value = attention_entry_row(CellKind::values, run, problem.dtype, value_dim, entry);
    const double weight = std::exp(scores[static_cast<size_t>(p - visible.low)] - max);
    sum += weight;
    for (size_t c = 0; c < out.size(); ++c) out[c] += weight * value[c];
  }
  const std::vector<float> rounded(out.begin(), out.end());
  const int64_t row = t * args.q_heads + h;
  const AttentionState& state = problem.state;
  merge_row_reference(state.out + row * value_dim, state.max + row, state.sum + row, rounded.data(),
                      static_cast<float>(max), static_cast<float>(sum), value_dim);
}

void show_queries_reference(const AttendArgs& args, const AttendProblem& problem, int64_t kv_head) {
  const int64_t group = args.q_heads / args.kv_heads;
  const HeadRun& run = problem.runs[kv_head];
  for (int64_t t = 0; t < problem.q_len; ++t) {
    const Visible visible = visible_range(problem, run, t);
    if (visible.high <= visible.low) continue;
    const int64_t first = visible.low / kChunk * kChunk;
    const int64_t chunks = (visible.high - first + kChunk - 1) / kChunk;
    std::vector<float> weights(static_cast<size_t>(group * chunks * kChunk));
    const std::vector<float> factors(static_cast<size_t>(group * chunks), 1.0f);
    for (int64_t g = 0; g < group; ++g) {
      const int64_t head = kv_head * group + g, row = t * args.q_heads + head;
      const float* q = problem.q + t * problem.q_token_stride + head * problem.q_head_stride;
      const std::vector<double> scores = query_scores(args, problem, run, visible, q);
      float* const to = weights.data() + g * chunks * kChunk + visible.low - first;
      for (size_t i = 0; i < scores.size(); ++i) {
        to[i] = static_cast<float>(std::exp(scores[i] - problem.state.max[row]) / problem.state.sum[row]);
      }
    }
    problem.reader->read({.kv_head = kv_head,
                          .group = group,
                          .first_token = t,
                          .tokens = 1,
                          .low = &visible.low,
                          .high = &visible.high,
                          .first = first,
                          .weights = weights.data(),
                          .weights_stride = chunks * kChunk,
                          .factors = factors.data(),
                          .factors_stride = chunks});
  }
}

}  // namespace kvarena::kernels
