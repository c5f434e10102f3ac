#include "kernels/bench/bench.h"
#include "kernels/quantize/quantize.h"

namespace kvarena::kernels {
namespace {

/// Encoding or decoding `n` entries of 64 channels in groups of 32; bytes are the float32 rows.
void quantize_bench(benchmark::State& state, CellKind kind, bool encode) {
  constexpr int64_t n = 4096, d = 64;
  const int bits = static_cast<int>(state.range(0));
  std::vector<float> rows = bench::numbers(n * d, 1);
  const int64_t meta = packed_meta_count(kind, n, d, {});
  std::vector<uint32_t> codes(static_cast<size_t>(packed_code_dwords(n, d, bits)));
  std::vector<uint16_t> scale(static_cast<size_t>(meta)), zero(static_cast<size_t>(meta));
  const PackedEntries packed{kind, {.bits = bits}, d, codes.data(), scale.data(), zero.data()};
  encode_rows(packed, 0, n, rows.data(), d);
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    if (encode) {
      encode_rows(packed, 0, n, rows.data(), d);
    } else {
      decode_rows(packed, 0, n, rows.data(), d);
    }
    benchmark::DoNotOptimize(codes.data());
  }
  yardstick.report(n * d * 4, 0);
}
BENCHMARK_CAPTURE(quantize_bench, encode_keys, CellKind::keys, true)->Arg(4)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(quantize_bench, encode_values, CellKind::values, true)->Arg(4)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(quantize_bench, decode_keys, CellKind::keys, false)->Arg(4)->UseRealTime();
BENCHMARK_CAPTURE(quantize_bench, decode_values, CellKind::values, false)->Arg(4)->UseRealTime();

}  // namespace
}  // namespace kvarena::kernels
