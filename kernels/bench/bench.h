#pragma once
// Shared parts of the kernels' microbenchmarks: data larger than the caches, limits of the machine beside the figures.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace kvarena::kernels::bench {

/// Data larger than the last-level cache: a benchmark walks through copies of its problem that fill this many bytes, so
/// that every iteration reads DRAM as a model's next layer would.
inline constexpr int64_t kColdBytes = int64_t{192} << 20;

[[nodiscard]] inline int64_t copies_for(int64_t bytes) {
  return std::max<int64_t>(1, kColdBytes / std::max<int64_t>(1, bytes));
}

/// `count` cheap pseudo-random numbers of about unit size.
[[nodiscard]] inline std::vector<float> numbers(int64_t count, uint32_t seed) {
  std::vector<float> x(static_cast<size_t>(count));
  std::minstd_rand generator(seed);
  for (float& v : x) v = static_cast<float>(generator() % 4096) / 1024.0f - 2.0f;
  return x;
}

/// Measures the machine's limits for this benchmark (before its loop), and after the loop declares bytes and operations
/// of one iteration: the table then shows GB/s and its share of the bandwidth, GFLOP/s and its share of the FMA peak.
class Yardstick {
 public:
  explicit Yardstick(benchmark::State& state);
  void report(int64_t bytes_per_iteration, int64_t flops_per_iteration);

 private:
  benchmark::State& state_;
  double bandwidth_;
};

}  // namespace kvarena::kernels::bench
