#include <cstring>

#include "kernels/bench/bench.h"
#include "kernels/matmul/matmul.h"

namespace kvarena::kernels {
namespace {

/// Random weights [n, k].
PackedMatrix random_matrix(int64_t n, int64_t k, WeightForm form, Arithmetic arithmetic) {
  if (!is_blocks(form)) return pack_weights(bench::numbers(n * k, 1).data(), n, k, dtype_of(form), arithmetic);
  PackedMatrix w(n, k, form);
  const BlockForm shape = block_form(form);
  std::minstd_rand generator(1);
  WeightBlock block;
  block.scale = shape.exponent ? 120 : f32_to_f16(0.01F);
  for (uint8_t& code : block.codes) code = static_cast<uint8_t>(generator() % (1U << shape.code_bits));
  for (uint8_t& code : block.factors) code = static_cast<uint8_t>(generator() % (1U << shape.factor_bits));
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t index = 0; index < k / shape.inputs; ++index) w.pack_block(row, index, block);
  }
  return w;
}

/// m rows times [n, k]; few rows are bound by the weights' bytes, many by arithmetic.
void matmul_bench(benchmark::State& state, WeightForm form, bool cold, Arithmetic arithmetic = Arithmetic::exact) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const std::vector<float> x = bench::numbers(m * k, 2);
  std::vector<PackedMatrix> matrices;
  matrices.push_back(random_matrix(n, k, form, arithmetic));
  const int64_t bytes = matrices.front().bytes();
  for (int64_t i = 1; i < (cold ? bench::copies_for(bytes) : 1); ++i) {
    std::memcpy(matrices.emplace_back(n, k, form, arithmetic).data(), matrices.front().data(),
                static_cast<size_t>(bytes));
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
BENCHMARK_CAPTURE(matmul_bench, few_rows / f32, WeightForm::f32, true)->Apply(few)->UseRealTime();
BENCHMARK_CAPTURE(matmul_bench, few_rows / bf16, WeightForm::bf16, true)->Apply(few)->UseRealTime();
BENCHMARK_CAPTURE(matmul_bench, few_rows / rounded, WeightForm::bf16, true, Arithmetic::bf16)
    ->Apply(few)
    ->UseRealTime();
BENCHMARK_CAPTURE(matmul_bench, many_rows / f32, WeightForm::f32, false)->Apply(many)->UseRealTime();
BENCHMARK_CAPTURE(matmul_bench, many_rows / bf16, WeightForm::bf16, false)->Apply(many)->UseRealTime();
BENCHMARK_CAPTURE(matmul_bench, many_rows / rounded, WeightForm::bf16, false, Arithmetic::bf16)
    ->Apply(many)
    ->UseRealTime();
/// Rows of whole blocks of 256.
void blocks(benchmark::internal::Benchmark* b) {
  for (const int64_t m : {1, 2, 4, 8, 16, 512}) b->Args({m, 1536, 768});
  b->Args({1, 4096, 4096})->UseRealTime();
}
BENCHMARK_CAPTURE(matmul_bench, blocks / q4_0, WeightForm::q4_0, true)->Apply(blocks);
BENCHMARK_CAPTURE(matmul_bench, blocks / q4_1, WeightForm::q4_1, true)->Apply(blocks);
BENCHMARK_CAPTURE(matmul_bench, blocks / q5_0, WeightForm::q5_0, true)->Apply(blocks);
BENCHMARK_CAPTURE(matmul_bench, blocks / q8_0, WeightForm::q8_0, true)->Apply(blocks);
BENCHMARK_CAPTURE(matmul_bench, blocks / mxfp4, WeightForm::mxfp4, true)->Apply(blocks);
BENCHMARK_CAPTURE(matmul_bench, blocks / q2_k, WeightForm::q2_k, true)->Apply(blocks);
BENCHMARK_CAPTURE(matmul_bench, blocks / q3_k, WeightForm::q3_k, true)->Apply(blocks);
BENCHMARK_CAPTURE(matmul_bench, blocks / q4_k, WeightForm::q4_k, true)->Apply(blocks);
BENCHMARK_CAPTURE(matmul_bench, blocks / q5_k, WeightForm::q5_k, true)->Apply(blocks);
BENCHMARK_CAPTURE(matmul_bench, blocks / q6_k, WeightForm::q6_k, true)->Apply(blocks);
BENCHMARK_CAPTURE(matmul_bench, blocks / iq4_xs, WeightForm::iq4_xs, true)->Apply(blocks);

}  // namespace
}  // namespace kvarena::kernels
