#include "kernels/limits/limits.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "kernels/common/parallel.h"
#include "kernels/limits/limits_paths.h"

namespace kvarena::kernels {
namespace {

float read_plain(const float* data, int64_t bytes) {
  float sums[16] = {};
  for (int64_t i = 0; i < bytes / 4; i += 16) {
    for (int64_t j = 0; j < 16; ++j) sums[j] += data[i + j];
  }
  return sums[0] + sums[15];
}

float multiply_add_plain(int64_t steps) {
  float acc[kMultiplyAddsPerStep] = {};
  for (int64_t s = 0; s < steps; ++s) {
    for (float& a : acc) a = a * 0.999f + 0.5f;
  }
  return *std::max_element(std::begin(acc), std::end(acc));
}

const LimitsTable& table() {
  const LimitsTable* fast = KVARENA_ACTIVE_TABLE(limits_table);
  return fast != nullptr ? *fast : limits_reference;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Best rate of repeated passes; `amount` per pass.
template <class Pass>
double best_rate(double seconds, double amount, const Pass& pass) {
  const auto begin = std::chrono::steady_clock::now();
  double best = 0;
  do {
    const auto start = std::chrono::steady_clock::now();
    pass();
    best = std::max(best, amount / seconds_since(start));
  } while (seconds_since(begin) < seconds);
  return best;
}

}  // namespace

const LimitsTable limits_reference = {read_plain, multiply_add_plain};

double measure_read_bandwidth(double seconds) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  // A pass takes a few milliseconds, so that the best of many is one that no other process disturbed.
  constexpr int64_t kPasses = 8;
  static const std::vector<float> memory(static_cast<size_t>(kBytes / 4), 1.0f);
  const LimitsTable& use = table();
  const int64_t threads = thread_count(), part = kBytes / kPasses / threads / 4096 * 4096;
  std::vector<float> sums(static_cast<size_t>(threads));
  int64_t pass = 0;
  return best_rate(seconds, static_cast<double>(part * threads), [&] {
    const float* data = memory.data() + pass++ % kPasses * (kBytes / kPasses / 4);
    parallel_for(threads, [&](int64_t t) { sums[static_cast<size_t>(t)] = use.read(data + t * part / 4, part); });
  });
}

double measure_fma_peak(double seconds) {
  constexpr int64_t kSteps = 50000;
  const LimitsTable& use = table();
  const int64_t threads = thread_count();
  std::vector<float> sums(static_cast<size_t>(threads));
  return best_rate(seconds, static_cast<double>(2 * kMultiplyAddsPerStep * kSteps * threads), [&] {
    parallel_for(threads, [&](int64_t t) { sums[static_cast<size_t>(t)] = use.multiply_add(kSteps); });
  });
}

}  // namespace kvarena::kernels
