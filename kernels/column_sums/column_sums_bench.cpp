#include "kernels/bench/bench.h"
#include "kernels/column_sums/column_sums.h"

namespace kvarena::kernels {
namespace {

/// SmolLM2-135M heads: the last q_len queries of n entries.
void column_sums_bench(benchmark::State& state, DType dtype) {
  const int64_t n = state.range(0), q_len = state.range(1);
  const std::vector<float> rows = bench::numbers(n * 64, 1), q = bench::numbers(q_len * 9 * 64, 2);
  std::vector<float> memory(static_cast<size_t>(cell_bytes(n, 64, dtype) / 4)),
      lse(static_cast<size_t>(q_len * 9), 20.0f);
  store_rows({CellKind::keys, dtype, 64, memory.data()}, 0, n, rows.data(), 64);
  const HeadRun run{memory.data(), nullptr, n};
  const HeadRun runs[] = {run, run, run};
  std::vector<float> sums(static_cast<size_t>(9 * n));
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    const ColumnSumsProblem problem{q.data(), q_len, 9 * 64, 64, lse.data(), runs, dtype, true, 0, sums.data(), n};
    column_sums({{&problem, 1}, 9, 3, 64, 0.125f});
    benchmark::DoNotOptimize(sums.data());
  }
  const int64_t pairs = q_len * n - q_len * (q_len - 1) / 2;
  yardstick.report(0, 2 * 9 * 64 * pairs);
}
BENCHMARK_CAPTURE(column_sums_bench, f32, DType::f32)
    ->Args({2048, 2048})
    ->Args({4096, 32})
    ->Args({4096, 1})
    ->UseRealTime();
BENCHMARK_CAPTURE(column_sums_bench, bf16, DType::bf16)
    ->Args({2048, 2048})
    ->Args({4096, 32})
    ->Args({4096, 1})
    ->UseRealTime();

}  // namespace
}  // namespace kvarena::kernels
