#include "kernels/bench/bench.h"
#include "kernels/cell_scores/cell_scores.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kDim = 64;

void cell_scores_bench(benchmark::State& state) {
  const int64_t n = state.range(0);
  std::vector<float> memory(static_cast<size_t>(cell_bytes(n, kDim, DType::bf16) / 4));
  const std::vector<float> q = bench::numbers(3 * kDim, 3);
  std::vector<float> scores(static_cast<size_t>(3 * n));
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    cell_scores(q.data(), 3, kDim, {CellKind::keys, DType::bf16, kDim, memory.data()}, n, scores.data(), n);
    benchmark::DoNotOptimize(scores.data());
  }
  yardstick.report(n * kDim * 2, 3 * n * kDim * 2);
}
BENCHMARK(cell_scores_bench)->Arg(32768)->UseRealTime();

}  // namespace
}  // namespace kvarena::kernels
