// Cost of summing up attention while it is computed: the same prefill without a reader and with each of the sums.

#include <functional>

#include "kernels/attention_sums/attention_sums.h"
#include "kernels/bench/bench.h"

namespace kvarena::kernels {
namespace {

/// Adds rows to sums of n entries a query head, and to more of them.
using Sum = std::function<void(const ProbabilityRows& rows, int64_t n, float* sums, float* more)>;

class Reader final : public AttentionReader {
 public:
  Reader(int64_t heads, int64_t n, Sum sum)
      : n_(n), sum_(std::move(sum)), sums_(static_cast<size_t>(heads * n)), more_(sums_.size()) {}
  void read(const ProbabilityRows& rows) override {
    const int64_t at = rows.kv_head * rows.group * n_;
    sum_(rows, n_, sums_.data() + at, more_.data() + at);
  }

 private:
  int64_t n_;
  Sum sum_;
  std::vector<float> sums_, more_;
};

/// SmolLM2-135M heads: the last q_len queries of n entries in bf16.
void attend_and_sum(benchmark::State& state, const Sum& sum) {
  const int64_t n = state.range(0), q_len = state.range(1);
  const std::vector<float> rows = bench::numbers(n * 64, 1), q = bench::numbers(q_len * 9 * 64, 2);
  std::vector<float> keys(static_cast<size_t>(cell_bytes(n, 64, DType::bf16) / 4)), values(keys.size());
  store_rows({CellKind::keys, DType::bf16, 64, keys.data()}, 0, n, rows.data(), 64);
  store_rows({CellKind::values, DType::bf16, 64, values.data()}, 0, n, rows.data(), 64);
  const HeadRun run{keys.data(), values.data(), n};
  const HeadRun runs[] = {run, run, run};
  std::vector<float> out(q.size()), max(static_cast<size_t>(q_len * 9)), weight(max.size());
  const AttentionState memory{out.data(), max.data(), weight.data()};
  Reader reader(9, n, sum);
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    init_attention(memory, q_len, 9, 64);
    const AttendProblem problem{.q = q.data(),
                                .q_len = q_len,
                                .q_token_stride = 9 * 64,
                                .q_head_stride = 64,
                                .runs = runs,
                                .dtype = DType::bf16,
                                .causal = true,
                                .state = memory,
                                .reader = sum ? &reader : nullptr};
    attend({{&problem, 1}, 9, 3, 64, 0, 0.125f});
    benchmark::DoNotOptimize(out.data());
  }
  yardstick.report(0, 4 * 9 * 64 * (q_len * n - q_len * (q_len - 1) / 2));
}

void arguments(benchmark::internal::Benchmark* b) {
  b->Args({2048, 2048})->Args({8192, 512})->Args({32768, 512})->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(attend_and_sum, nothing, Sum())->Apply(arguments);
BENCHMARK_CAPTURE(attend_and_sum, probabilities,
                  [](const ProbabilityRows& rows, int64_t n, float* sums, float* /*more*/) {
                    add_probabilities(rows, sums, n);
                  })
    ->Apply(arguments);
BENCHMARK_CAPTURE(attend_and_sum, moments, [](const ProbabilityRows& rows, int64_t /*n*/, float* sums, float* more) {
  add_moments(rows, sums, more);
})->Apply(arguments);
BENCHMARK_CAPTURE(attend_and_sum, perturbed,
                  [](const ProbabilityRows& rows, int64_t /*n*/, float* sums, float* /*more*/) {
                    const std::vector<uint64_t> keys(static_cast<size_t>(rows.tokens * rows.group));
                    add_perturbed(rows, keys.data(), 1, sums);
                  })
    ->Apply(arguments);

}  // namespace
}  // namespace kvarena::kernels
