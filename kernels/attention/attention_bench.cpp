#include <memory>

#include "kernels/attention/attention.h"
#include "kernels/bench/bench.h"
#include "kernels/quantize/fp4.h"

namespace kvarena::kernels {
namespace {

struct Shape {
  int64_t q_heads, kv_heads, head_dim;
  Arithmetic arithmetic = Arithmetic::exact;
};
constexpr Shape kSmol{9, 3, 64};  // SmolLM2-135M
constexpr Shape kSmolRounded{9, 3, 64, Arithmetic::bf16};
constexpr Shape kLlama{32, 8, 128};  // Llama-3.1-8B

/// Caches of several layers, so that one layer's turn reads DRAM.
class Layers {
 public:
  Layers(const Shape& shape, DType dtype, int64_t entries, int64_t copies) {
    const std::vector<float> rows = bench::numbers(entries * shape.head_dim, 3);
    for (int64_t i = 0; i < copies * shape.kv_heads; ++i) {
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        memory_.emplace_back(static_cast<size_t>(cell_bytes(entries, shape.head_dim, dtype) / 4));
        store_rows({kind, dtype, shape.head_dim, memory_.back().data()}, 0, entries, rows.data(), shape.head_dim);
      }
      const size_t last = memory_.size() - 1;
      runs_.push_back({memory_[last - 1].data(), memory_[last].data(), entries});
    }
  }
  [[nodiscard]] HeadRun* runs() { return runs_.data(); }

 private:
  std::vector<std::vector<float>> memory_;
  std::vector<HeadRun> runs_;
};

/// Packed caches of several layers.
class PackedLayers {
 public:
  PackedLayers(const Shape& shape, const QuantFormat& format, int64_t entries, int64_t copies) {
    const std::vector<float> rows = bench::numbers(entries * shape.head_dim, 4);
    packed_.reserve(static_cast<size_t>(copies * shape.kv_heads * 2));
    for (int64_t i = 0; i < copies * shape.kv_heads; ++i) {
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        const int64_t meta = packed_meta_count(kind, entries, shape.head_dim, format);
        codes_.emplace_back(static_cast<size_t>(packed_code_dwords(entries, shape.head_dim, format.bits)));
        meta_.emplace_back(static_cast<size_t>(2 * meta));
        packed_.push_back(
            {kind, format, shape.head_dim, codes_.back().data(), meta_.back().data(), meta_.back().data() + meta});
        if (i == 0) {
          encode_rows(packed_.back(), 0, entries, rows.data(), shape.head_dim);
        } else {
          codes_.back() = codes_[codes_.size() - 3];
          meta_.back() = meta_[meta_.size() - 3];
          packed_.back().codes = codes_.back().data();
          packed_.back().scale = meta_.back().data();
          packed_.back().zero = meta_.back().data() + meta;
        }
      }
      const PackedEntries* keys = &packed_[packed_.size() - 2];
      runs_.push_back({nullptr, nullptr, entries, nullptr, 0, keys, entries, keys + 1, entries});
    }
  }
  [[nodiscard]] HeadRun* runs() { return runs_.data(); }

 private:
  std::vector<std::vector<uint32_t>> codes_;
  std::vector<std::vector<uint16_t>> meta_;
  std::vector<PackedEntries> packed_;
  std::vector<HeadRun> runs_;
};

/// One call per iteration on the next layer's cache.
void attend_loop(benchmark::State& state, const Shape& shape, DType dtype, HeadRun* runs, int64_t copies, int64_t q_len,
                 int64_t bytes, int64_t flops) {
  const std::vector<float> q = bench::numbers(q_len * shape.q_heads * shape.head_dim, 5);
  std::vector<float> out(q.size()), max(static_cast<size_t>(q_len * shape.q_heads)), sum(max.size());
  const AttentionState memory{out.data(), max.data(), sum.data()};
  bench::Yardstick yardstick(state);
  int64_t next = 0;
  for ([[maybe_unused]] auto _ : state) {
    init_attention(memory, q_len, shape.q_heads, shape.head_dim);
    const AttendProblem problem{.q = q.data(),
                                .q_len = q_len,
                                .q_token_stride = shape.q_heads * shape.head_dim,
                                .q_head_stride = shape.head_dim,
                                .runs = runs + next * shape.kv_heads,
                                .dtype = dtype,
                                .causal = true,
                                .state = memory};
    attend({{&problem, 1}, shape.q_heads, shape.kv_heads, shape.head_dim, 0, 0.125f, shape.arithmetic});
    next = (next + 1) % copies;
    benchmark::DoNotOptimize(out.data());
  }
  yardstick.report(bytes, flops);
}

void attend_decode(benchmark::State& state, Shape shape, DType dtype) {
  const int64_t entries = state.range(0), q_len = state.range(1);
  const int64_t bytes = 2 * entries * shape.kv_heads * shape.head_dim * size_of(dtype);
  const int64_t copies = bench::copies_for(bytes);
  Layers layers(shape, dtype, entries, copies);
  attend_loop(state, shape, dtype, layers.runs(), copies, q_len, bytes,
              4 * shape.q_heads * q_len * entries * shape.head_dim);
}

/// Keys grouped along tokens (along_tokens), or in tokens as most others'.
QuantFormat along_tokens(int bits) { return {.bits = bits}; }
QuantFormat token(int bits, int64_t group_size) {
  return {.bits = bits, .group_size = group_size, .token_groups = true};
}
QuantFormat rotated(int bits, int64_t head_dim) {
  static const std::vector<float> levels = bench::numbers(32, 9);
  return {.bits = bits,
          .group_size = head_dim,
          .rule = QuantRule::norm,
          .levels = Levels::codebook,
          .codebook = levels.data(),
          .token_groups = true};
}
QuantFormat e4m3() {
  return {.bits = 8, .group_size = 64, .rule = QuantRule::absmax, .levels = Levels::e4m3, .token_groups = true};
}
QuantFormat e2m1(QuantRule rule, int64_t group_size) {
  return {.bits = 4,
          .group_size = group_size,
          .rule = rule,
          .levels = Levels::codebook,
          .codebook = kLevelsE2M1,
          .token_groups = true};
}

void attend_packed(benchmark::State& state, Shape shape, const QuantFormat& format) {
  const int64_t entries = state.range(0), q_len = state.range(1);
  const int64_t stored = (stores_scale(format) ? 1 : 0) + (stores_zero(format) ? 1 : 0);
  const int64_t meta = 8 * meta_size(format) * stored;  // bits a group
  const int64_t bytes =
      2 * entries * shape.kv_heads * shape.head_dim * (format.bits * format.group_size + meta) / format.group_size / 8;
  const int64_t copies = bench::copies_for(bytes);
  PackedLayers layers(shape, format, entries, copies);
  attend_loop(state, shape, DType::bf16, layers.runs(), copies, q_len, bytes,
              4 * shape.q_heads * q_len * entries * shape.head_dim);
  state.counters["codes"] = benchmark::Counter(static_cast<double>(2 * entries * shape.kv_heads * shape.head_dim),
                                               benchmark::Counter::kIsIterationInvariantRate);
}

/// A budget of listed entries out of a long cache, in whole pages of 16 (step 16) or singly.
void attend_indexed(benchmark::State& state, Shape shape, DType dtype) {
  const int64_t entries = state.range(0), budget = state.range(1), step = state.range(2);
  const int64_t copies = bench::copies_for(2 * entries * shape.kv_heads * shape.head_dim * size_of(dtype));
  Layers layers(shape, dtype, entries, copies);
  std::vector<int32_t> index;
  const int64_t groups = budget / step;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = g * entries / groups / step * step;
    for (int64_t e = 0; e < step; ++e) index.push_back(static_cast<int32_t>(begin + e));
  }
  for (int64_t i = 0; i < copies * shape.kv_heads; ++i) {
    layers.runs()[i].index = index.data();
    layers.runs()[i].index_count = static_cast<int64_t>(index.size());
  }
  attend_loop(state, shape, dtype, layers.runs(), copies, 1,
              2 * budget * shape.kv_heads * shape.head_dim * size_of(dtype),
              4 * shape.q_heads * budget * shape.head_dim);
}

void attend_prefill(benchmark::State& state, Shape shape, DType dtype) {
  const int64_t n = state.range(0);
  Layers layers(shape, dtype, n, 1);
  attend_loop(state, shape, dtype, layers.runs(), 1, n, 0, 4 * shape.q_heads * shape.head_dim * n * (n + 1) / 2);
}

void decode_args(benchmark::internal::Benchmark* b) {
  for (const int64_t n : {512, 4096, 16384}) b->Args({n, 1});
  b->Args({4096, 8})->Args({4096, 25});
}
BENCHMARK_CAPTURE(attend_decode, smol / f32, kSmol, DType::f32)->Apply(decode_args)->UseRealTime();
BENCHMARK_CAPTURE(attend_decode, smol / bf16, kSmol, DType::bf16)->Apply(decode_args)->UseRealTime();
BENCHMARK_CAPTURE(attend_decode, smol / rounded, kSmolRounded, DType::bf16)->Apply(decode_args)->UseRealTime();
BENCHMARK_CAPTURE(attend_decode, smol / f16, kSmol, DType::f16)->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_decode, llama / bf16, kLlama, DType::bf16)->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, smol / 8bit, kSmol, along_tokens(8))->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, smol / 4bit, kSmol, along_tokens(4))->Args({4096, 1})->Args({4096, 8})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, smol / 3bit, kSmol, along_tokens(3))->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, smol / 2bit, kSmol, along_tokens(2))->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, smol / 1bit, kSmol, along_tokens(1))->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, llama / 4bit, kLlama, along_tokens(4))->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, llama / 2bit, kLlama, along_tokens(2))->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, smol / token 4bit, kSmol, token(4, 64))->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, smol / token 2bit, kSmol, token(2, 64))->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, smol / blocks of 32 4bit, kSmol, token(4, 32))->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, smol / codebook 4bit, kSmol, rotated(4, 64))->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, smol / codebook 3bit, kSmol, rotated(3, 64))->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, smol / e4m3, kSmol, e4m3())->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, smol / nvfp4, kSmol, e2m1(QuantRule::nv, 16))->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, smol / mxfp4, kSmol, e2m1(QuantRule::mx, 32))->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_packed, llama / codebook 4bit, kLlama, rotated(4, 128))->Args({4096, 1})->UseRealTime();
BENCHMARK_CAPTURE(attend_indexed, smol / bf16, kSmol, DType::bf16)
    ->Args({32768, 2048, 16})
    ->Args({32768, 2048, 1})
    ->Args({32768, 32768, 16})
    ->UseRealTime();
BENCHMARK_CAPTURE(attend_prefill, smol / f32, kSmol, DType::f32)->Arg(512)->Arg(2048)->UseRealTime();
BENCHMARK_CAPTURE(attend_prefill, smol / bf16, kSmol, DType::bf16)->Arg(512)->Arg(2048)->UseRealTime();
BENCHMARK_CAPTURE(attend_prefill, smol / rounded, kSmolRounded, DType::bf16)->Arg(512)->Arg(2048)->UseRealTime();
BENCHMARK_CAPTURE(attend_prefill, llama / bf16, kLlama, DType::bf16)->Arg(512)->UseRealTime();

}  // namespace
}  // namespace kvarena::kernels
