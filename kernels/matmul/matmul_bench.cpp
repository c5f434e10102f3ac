#include "kernels/bench/bench.h"
#include "kernels/matmul/matmul.h"

namespace kvarena::kernels {
namespace {

/// m rows times [n, k]; few rows are bound by the weights' bytes, many by arithmetic.
void matmul_bench(benchmark::State& state, DType dtype, bool cold, Arithmetic arithmetic = Arithmetic::exact) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const std::vector<float> w = bench::numbers(n * k, 1), x = bench::numbers(m * k, 2);
  std::vector<PackedMatrix> matrices;
  const int64_t bytes = n * k * size_of(dtype);
  for (int64_t i = 0; i < (cold ? bench::copies_for(bytes) : 1); ++i) {
    matrices.push_back(pack_weights(w.data(), n, k, dtype, arithmetic));
  }
  std::vector<float> y(static_cast<size_t>(m * n));
  bench::Yardstick yardstick(state);
  size_t next = 0;
  for ([[maybe_unused]] auto _ : state) {
    matmul({x.data(), m, k, &matrices[next], nullptr, y.data(), n});
    next = (next + 1) % matrices.size();
    benchmark::DoNotOptimize(y.data());
  }
  yardstick.report(cold ? bytes : 0, 2 * m * n * k);
}

// SmolLM2-135M: q/o 576x576, gate/up 1536x576, down 576x1536, output 49152x576. Llama-3.1-8B: 4096x4096.
void few(benchmark::internal::Benchmark* b) {
  for (const int64_t m : {1, 2, 4, 8, 12, 16, 24, 32, 48, 64}) b->Args({m, 1536, 576});
  b->Args({16, 576, 1536})->Args({16, 4096, 4096})->Args({48, 4096, 4096});
  b->Args({1, 576, 576})->Args({1, 576, 1536})->Args({1, 49152, 576})->Args({1, 4096, 4096});
}
void many(benchmark::internal::Benchmark* b) {
  b->Args({64, 1536, 576})
      ->Args({512, 576, 576})
      ->Args({512, 1536, 576})
      ->Args({512, 576, 1536})
      ->Args({512, 4096, 4096});
}
BENCHMARK_CAPTURE(matmul_bench, few_rows / f32, DType::f32, true)->Apply(few)->UseRealTime();
BENCHMARK_CAPTURE(matmul_bench, few_rows / bf16, DType::bf16, true)->Apply(few)->UseRealTime();
BENCHMARK_CAPTURE(matmul_bench, few_rows / rounded, DType::bf16, true, Arithmetic::bf16)->Apply(few)->UseRealTime();
BENCHMARK_CAPTURE(matmul_bench, many_rows / f32, DType::f32, false)->Apply(many)->UseRealTime();
BENCHMARK_CAPTURE(matmul_bench, many_rows / bf16, DType::bf16, false)->Apply(many)->UseRealTime();
BENCHMARK_CAPTURE(matmul_bench, many_rows / rounded, DType::bf16, false, Arithmetic::bf16)->Apply(many)->UseRealTime();

}  // namespace
}  // namespace kvarena::kernels
