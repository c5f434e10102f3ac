#include <algorithm>
#include <cmath>

#include "kernels/bench/bench.h"
#include "kernels/entropy/rans.h"

namespace kvarena::kernels {
namespace {

/// 256 tokens of 16 channels with normally distributed codes; bytes are the 16-bit numbers they stand for.
void rans_bench(benchmark::State& state, bool encode) {
  constexpr int64_t n = 256, blocks = 64;
  const int64_t count = state.range(0);
  const std::vector<float> numbers = bench::numbers(n * kRansLanes, 1);
  std::vector<uint8_t> symbols(numbers.size()), decoded(numbers.size());
  std::vector<uint32_t> counts(static_cast<size_t>(count * kRansLanes));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float code = std::round((numbers[i] + 1) / 2 * static_cast<float>(count - 1));
    symbols[i] = static_cast<uint8_t>(std::clamp(code, 0.0f, static_cast<float>(count - 1)));
    ++counts[symbols[i] * 16 + i % 16];
  }
  std::vector<int16_t> starts(static_cast<size_t>((count + 1) * kRansLanes));
  rans_starts(counts.data(), count, starts.data());
  std::vector<uint8_t> block(static_cast<size_t>(rans_bound(n)));
  const int64_t bytes = rans_encode(symbols.data(), n, starts.data(), block.data());
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    for (int64_t i = 0; i < blocks; ++i) {
      if (encode) {
        benchmark::DoNotOptimize(rans_encode(symbols.data(), n, starts.data(), block.data()));
      } else {
        benchmark::DoNotOptimize(rans_decode(block.data(), bytes, n, starts.data(), count, decoded.data()));
      }
    }
  }
  yardstick.report(blocks * n * kRansLanes * 2, 0);
}
BENCHMARK_CAPTURE(rans_bench, decode, false)->Arg(15)->Arg(31)->UseRealTime();
BENCHMARK_CAPTURE(rans_bench, encode, true)->Arg(15)->Arg(31)->UseRealTime();

}  // namespace
}  // namespace kvarena::kernels
