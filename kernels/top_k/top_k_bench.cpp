#include "kernels/bench/bench.h"
#include "kernels/top_k/top_k.h"

namespace kvarena::kernels {
namespace {

void top_k_bench(benchmark::State& state) {
  const int64_t rows = state.range(0), n = state.range(1), k = state.range(2);
  const std::vector<float> scores = bench::numbers(rows * n, 1);
  std::vector<int32_t> index(static_cast<size_t>(rows * k));
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state)
    benchmark::DoNotOptimize(top_k_rows(scores.data(), rows, n, n, k, index.data()));
  yardstick.report(rows * n * 4, 0);
}
BENCHMARK(top_k_bench)->Args({3, 2048, 128})->Args({3, 32768, 2048})->UseRealTime();

}  // namespace
}  // namespace kvarena::kernels
