#include <cmath>

#include "kernels/attention/attention_paths.h"
#include "kernels/column_sums/column_sums_paths.h"

namespace kvarena::kernels {

void column_sums_reference(const ColumnSumsWork& work) {
  const ColumnSumsArgs& args = *work.args;
  const ColumnSumsProblem& problem = *work.problem;
  const HeadRun& run = problem.runs[work.kv_head];
  const int64_t group = args.q_heads / args.kv_heads;
  for (int64_t h = work.kv_head * group; h < (work.kv_head + 1) * group; ++h) {
    for (int64_t p = 0; p < work.count; ++p) {
      const int64_t position = work.first + p, entry = run.index != nullptr ? run.index[position] : position;
      const std::vector<float> key = attention_entry_row(CellKind::keys, run, problem.dtype, args.head_dim, entry);
      double sum = problem.sums[h * problem.sums_stride + position];
      for (int64_t t = 0; t < problem.q_len; ++t) {
        const float lse = problem.lse[t * args.q_heads + h];
        if (p < work.low[t] || p >= work.high[t] || (std::isinf(lse) && lse < 0)) continue;
        const float* q = problem.q + t * problem.q_token_stride + h * problem.q_head_stride;
        double score = 0;
        for (int64_t c = 0; c < args.head_dim; ++c) score += static_cast<double>(q[c]) * key[static_cast<size_t>(c)];
        score = score * args.scale + (run.bias != nullptr ? run.bias[position] : 0);
        sum += std::exp(score - lse);
      }
      problem.sums[h * problem.sums_stride + position] = static_cast<float>(sum);
    }
  }
}

}  // namespace kvarena::kernels
