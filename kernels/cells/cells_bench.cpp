#include "kernels/bench/bench.h"
#include "kernels/cells/cells.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kEntries = 65536, kDim = 64;

void store_bench(benchmark::State& state, CellKind kind, DType dtype) {
  const std::vector<float> rows = bench::numbers(kEntries * kDim, 1);
  std::vector<float> memory(static_cast<size_t>(cell_bytes(kEntries, kDim, dtype) / 4));
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    store_rows({kind, dtype, kDim, memory.data()}, 0, kEntries, rows.data(), kDim);
    benchmark::DoNotOptimize(memory.data());
  }
  yardstick.report(kEntries * kDim * (4 + size_of(dtype)), 0);
}
BENCHMARK_CAPTURE(store_bench, keys / bf16, CellKind::keys, DType::bf16)->UseRealTime();
BENCHMARK_CAPTURE(store_bench, values / bf16, CellKind::values, DType::bf16)->UseRealTime();

/// Compaction of every second entry, or of every second page.
void gather_bench(benchmark::State& state, CellKind kind) {
  const int64_t step = state.range(0);
  std::vector<float> memory(static_cast<size_t>(cell_bytes(kEntries, kDim, DType::bf16) / 4)), target = memory;
  std::vector<int32_t> index;
  for (int32_t e = 0; e < kEntries; ++e) {
    if (e / step % 2 == 0) index.push_back(e);
  }
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    gather_entries({kind, DType::bf16, kDim, memory.data()}, index.data(), static_cast<int64_t>(index.size()),
                   {kind, DType::bf16, kDim, target.data()}, 0);
    benchmark::DoNotOptimize(target.data());
  }
  yardstick.report(static_cast<int64_t>(index.size()) * kDim * 2 * 2, 0);
}
BENCHMARK_CAPTURE(gather_bench, keys, CellKind::keys)->Arg(1)->Arg(16)->UseRealTime();
BENCHMARK_CAPTURE(gather_bench, values, CellKind::values)->Arg(1)->Arg(16)->UseRealTime();

}  // namespace
}  // namespace kvarena::kernels
