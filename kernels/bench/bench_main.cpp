// kvarena-bench: every kernel's microbenchmark, with the machine's own limits measured in the same run.
//
//   kvarena-bench --benchmark_filter=Attend        KVARENA_CPU=avx2 OMP_NUM_THREADS=1 kvarena-bench
//
// bytes_per_second and flops are what the contract of a kernel states; of_read and of_fma are their shares of the read
// bandwidth measured just before the benchmark and of the FMA peak measured at the start.

#include <algorithm>
#include <cstdio>

#include "kernels/bench/bench.h"
#include "kernels/common/cpu_path.h"
#include "kernels/common/parallel.h"
#include "kernels/limits/limits.h"

namespace kvarena::kernels::bench {
namespace {

double fma_peak() {
  static const double peak = measure_fma_peak(0.3);
  return peak;
}

}  // namespace

Yardstick::Yardstick(benchmark::State& state) : state_(state), bandwidth_(measure_read_bandwidth(0.15)) {}

void Yardstick::report(int64_t bytes_per_iteration, int64_t flops_per_iteration) {
  using benchmark::Counter;
  const auto per_second = Counter::kIsIterationInvariantRate;
  if (bytes_per_iteration > 0) {
    const auto bytes = static_cast<double>(bytes_per_iteration);
    state_.SetBytesProcessed(state_.iterations() * bytes_per_iteration);
    state_.counters["read_GB/s"] = bandwidth_ / 1e9;
    state_.counters["of_read"] = Counter(bytes / bandwidth_, per_second);
  }
  if (flops_per_iteration > 0) {
    const auto flops = static_cast<double>(flops_per_iteration);
    state_.counters["flops"] = Counter(flops, per_second);
    state_.counters["of_fma"] = Counter(flops / fma_peak(), per_second);
  }
}

}  // namespace kvarena::kernels::bench

int main(int argc, char** argv) {
  using namespace kvarena::kernels;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  std::fprintf(stderr, "path %s, %d threads: DRAM read %.1f GB/s, FMA peak %.0f GFLOP/s\n", name_of(active_cpu_path()),
               static_cast<int>(thread_count()), measure_read_bandwidth(1.0) / 1e9, bench::fma_peak() / 1e9);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
