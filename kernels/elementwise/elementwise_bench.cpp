#include "kernels/bench/bench.h"
#include "kernels/elementwise/elementwise.h"

namespace kvarena::kernels {
namespace {

void rms_norm_bench(benchmark::State& state) {
  const int64_t rows = state.range(0), n = state.range(1);
  const std::vector<float> x = bench::numbers(rows * n, 1), w = bench::numbers(n, 2);
  std::vector<float> y(x.size());
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    rms_norm({x.data(), w.data(), y.data(), rows, n, n, n, 1e-5f});
    benchmark::DoNotOptimize(y.data());
  }
  yardstick.report(rows * n * 8, rows * n * 4);
}
BENCHMARK(rms_norm_bench)->Args({1, 576})->Args({2048, 576})->UseRealTime();

void silu_mul_bench(benchmark::State& state) {
  const int64_t rows = state.range(0), n = state.range(1);
  const std::vector<float> gate = bench::numbers(rows * n, 1), up = bench::numbers(rows * n, 2);
  std::vector<float> out(gate.size());
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    silu_mul({gate.data(), up.data(), out.data(), rows, n, n, n, n});
    benchmark::DoNotOptimize(out.data());
  }
  yardstick.report(rows * n * 12, 0);
}
BENCHMARK(silu_mul_bench)->Args({1, 1536})->Args({2048, 1536})->UseRealTime();

}  // namespace
}  // namespace kvarena::kernels
