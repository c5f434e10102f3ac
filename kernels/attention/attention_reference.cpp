#include <cmath>
#include <limits>
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

void attend_query_reference(const AttendArgs& args, const AttendProblem& problem, int64_t t, int64_t h) {
  const int64_t value_dim = args.value_dim == 0 ? args.head_dim : args.value_dim;
  const HeadRun& run = problem.runs[h / (args.q_heads / args.kv_heads)];
  const Visible visible = visible_range(problem, run, t);
  if (visible.high <= visible.low) return;
  const float* q = problem.q + t * problem.q_token_stride + h * problem.q_head_stride;

  std::vector<double> scores;
  double max = -std::numeric_limits<double>::infinity();
  for (int64_t p = visible.low; p < visible.high; ++p) {
    const int64_t entry = run.index != nullptr ? run.index[p] : p;
    double score = 0;
    for (int64_t c = 0; c < args.head_dim; ++c) {
      const int64_t at = cell_offset(CellKind::keys, args.head_dim, entry, c);
      score += static_cast<double>(q[c]) * load_element(run.keys, problem.dtype, at);
    }
    scores.push_back(score * args.scale);
    max = std::fmax(max, scores.back());
  }
  double sum = 0;
  std::vector<double> out(static_cast<size_t>(value_dim));
  for (int64_t p = visible.low; p < visible.high; ++p) {
    const int64_t entry = run.index != nullptr ? run.index[p] : p;
    const double weight = std::exp(scores[static_cast<size_t>(p - visible.low)] - max);
    sum += weight;
    for (int64_t c = 0; c < value_dim; ++c) {
      const int64_t at = cell_offset(CellKind::values, value_dim, entry, c);
      out[static_cast<size_t>(c)] += weight * load_element(run.values, problem.dtype, at);
    }
  }
  const std::vector<float> rounded(out.begin(), out.end());
  const int64_t row = t * args.q_heads + h;
  const AttentionState& state = problem.state;
  merge_row_reference(state.out + row * value_dim, state.max + row, state.sum + row, rounded.data(),
                      static_cast<float>(max), static_cast<float>(sum), value_dim);
}

}  // namespace kvarena::kernels
