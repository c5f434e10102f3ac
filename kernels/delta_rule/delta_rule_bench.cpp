#include "kernels/bench/bench.h"
#include "kernels/delta_rule/delta_rule.h"

namespace kvarena::kernels {
namespace {

/// Heads of Qwen3-Next.
void delta_rule_bench(benchmark::State& state) {
  const int64_t tokens = state.range(0);
  constexpr int64_t k_heads = 16, v_heads = 32, dim = 128, width = (2 * k_heads + v_heads) * dim;
  const std::vector<float> qkv = bench::numbers(tokens * width, 1);
  const std::vector<float> gates(static_cast<size_t>(tokens * v_heads), 0.5f);
  std::vector<float> held(static_cast<size_t>(v_heads * dim * dim)), out(static_cast<size_t>(tokens * v_heads * dim));
  bench::Yardstick yardstick(state);
  for ([[maybe_unused]] auto _ : state) {
    delta_rule({.q = qkv.data(),
                .k = qkv.data() + k_heads * dim,
                .v = qkv.data() + 2 * k_heads * dim,
                .decay = gates.data(),
                .beta = gates.data(),
                .state = held.data(),
                .out = out.data(),
                .tokens = tokens,
                .k_heads = k_heads,
                .v_heads = v_heads,
                .k_dim = dim,
                .v_dim = dim,
                .qkv_stride = width,
                .gate_stride = v_heads,
                .out_stride = v_heads * dim});
    benchmark::DoNotOptimize(out.data());
  }
  yardstick.report(v_heads * dim * dim * 8, tokens * v_heads * dim * dim * 7);
}
BENCHMARK(delta_rule_bench)->Arg(1)->Arg(64)->UseRealTime();

}  // namespace
}  // namespace kvarena::kernels
