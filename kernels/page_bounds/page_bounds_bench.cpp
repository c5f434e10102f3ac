#include "kernels/bench/bench.h"
#include "kernels/page_bounds/page_bounds.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kDim = 64;

void update_bounds_bench(benchmark::State& state) {
  const int64_t n = state.range(0);
  std::vector<float> memory(static_cast<size_t>(cell_bytes(n, kDim, DType::bf16) / 4));
  std::vector<float> low(static_cast<size_t>(cells_for(n) * kDim)), high(low.size());
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    update_page_bounds({CellKind::keys, DType::bf16, kDim, memory.data()}, 0, n, {low.data(), high.data()});
    benchmark::DoNotOptimize(low.data());
  }
  yardstick.report(n * kDim * 2, 0);
}
BENCHMARK(update_bounds_bench)->Arg(32768)->UseRealTime();

void page_scores_bench(benchmark::State& state) {
  const int64_t n = state.range(0), pages = cells_for(n);
  std::vector<float> low = bench::numbers(pages * kDim, 1), high = bench::numbers(pages * kDim, 2),
                     scores(static_cast<size_t>(3 * pages));
  const std::vector<float> q = bench::numbers(3 * kDim, 3);
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    page_scores(q.data(), 3, kDim, {low.data(), high.data()}, pages, kDim, scores.data(), pages);
    benchmark::DoNotOptimize(scores.data());
  }
  yardstick.report(pages * kDim * 8, 3 * pages * kDim * 4);
}
BENCHMARK(page_scores_bench)->Arg(32768)->UseRealTime();

}  // namespace
}  // namespace kvarena::kernels
