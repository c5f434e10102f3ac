#include "kernels/bench/bench.h"
#include "kernels/rope/rope.h"

namespace kvarena::kernels {
namespace {

void rotate_bench(benchmark::State& state) {
  const int64_t tokens = state.range(0);
  std::vector<float> x = bench::numbers(tokens * 9 * 64, 1);
  const std::vector<float> cos(static_cast<size_t>(tokens * 32), 0.8f), sin(cos.size(), 0.6f);
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    rotate({x.data(), tokens, 9, 64, 9 * 64, 64, 64, cos.data(), sin.data()});
    benchmark::DoNotOptimize(x.data());
  }
  yardstick.report(tokens * (9 * 64 * 4 * 2 + 64 * 4), tokens * 9 * 64 * 3);
}
BENCHMARK(rotate_bench)->Arg(1)->Arg(2048)->UseRealTime();

void rotate_cells_bench(benchmark::State& state) {
  constexpr int64_t n = 4096;
  std::vector<float> memory(static_cast<size_t>(cell_bytes(n, 64, DType::bf16) / 4));
  const std::vector<float> cos(32, 0.8f), sin(32, 0.6f);
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    rotate_cells({CellKind::keys, DType::bf16, 64, memory.data()}, 0, n, cos.data(), sin.data(), 32, 0);
    benchmark::DoNotOptimize(memory.data());
  }
  yardstick.report(n * 64 * 2 * 2, n * 64 * 3);
}
BENCHMARK(rotate_cells_bench)->UseRealTime();

}  // namespace
}  // namespace kvarena::kernels
