#include "kernels/bench/bench.h"
#include "kernels/hadamard/hadamard.h"

namespace kvarena::kernels {
namespace {

void hadamard_bench(benchmark::State& state) {
  const int64_t rows = state.range(0), n = state.range(1);
  std::vector<float> x = bench::numbers(rows * n, 1);
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    hadamard(x.data(), rows, n, n);
    benchmark::DoNotOptimize(x.data());
  }
  yardstick.report(rows * n * 8, 0);
}
BENCHMARK(hadamard_bench)->Args({3, 64})->Args({4096, 64})->Args({4096, 128})->UseRealTime();

}  // namespace
}  // namespace kvarena::kernels
