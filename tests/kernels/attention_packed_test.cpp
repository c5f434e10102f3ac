// Attention over runs whose older keys and values are packed, against attention over the decoded numbers.
#include <algorithm>

#include "kernels/quantize/fp4.h"
#include "tests/kernels/packed_layer.h"

namespace kvarena::kernels {
namespace {

using test::expect_close;
using test::expect_same_bits;
using test::Layer;
using test::normal;
using test::PackedLayer;
using test::PackedMemory;
using test::Shape;
using test::StateMemory;

struct Result {
  std::vector<float> out, lse;
};

Result run(const Shape& shape, const std::vector<float>& q, int64_t q_len, const std::vector<HeadRun>& runs,
           bool causal = true, int64_t window = 0) {
  StateMemory memory(shape, q_len);
  AttendProblem p = test::problem(shape, q.data(), q_len, runs, causal, memory);
  p.window = window;
  test::attend_one(shape, p);
  memory.finish();
  return {memory.out, memory.lse};
}

/// Largest error of an output or lse against attention in double, for queries and entries of unit normals and
/// scale = 1 / sqrt(head_dim). In floats, some units in the last place. In integers, a channel's product is rounded by
/// up to step / 2 times half the range of codes: 2^-16 of the group's largest, which is about 3.5 (a query) times 2.3
/// (half a range); uniformly so, over head_dim channels and times scale, that has a deviation of 7e-5 and, the codes
/// being closer to their middle than its ends, of 4e-5. Five of these. A score that is wrong by e moves an output by at
/// most e times the distance of the values, about as much.
double tolerance(const QuantFormat& format) {
  const bool integers = format.levels == Levels::uniform && 32 % format.bits == 0 && format.bits < 8;
  return integers ? 2e-4 : 3e-5;
}

/// Runs whose packed entries ask for floats throughout.
struct ExactRuns {
  explicit ExactRuns(std::vector<HeadRun> packed) : runs(std::move(packed)) {
    entries.reserve(2 * runs.size());
    for (HeadRun& run : runs) {
      for (const PackedEntries** side : {&run.packed_keys, &run.packed_values}) {
        if (*side == nullptr) continue;
        entries.push_back(**side);
        entries.back().exact = true;
        *side = &entries.back();
      }
    }
  }
  std::vector<HeadRun> runs;
  std::vector<PackedEntries> entries;
};

TEST(AttentionPacked, EqualsAttentionOnTheDecodedNumbers) {
  for (const int bits : {1, 2, 3, 4, 8}) {
    for (const auto& [q_heads, kv_heads] : {std::pair<int64_t, int64_t>{6, 2}, {7, 1}, {2, 2}}) {
      for (const int64_t head_dim : {64, 80, 128}) {
        const Shape shape{q_heads, kv_heads, head_dim, head_dim, DType::bf16};
        const QuantFormat format{.bits = bits,
                                 .group_size = head_dim == 80 ? 16 : 32,
                                 .meta = bits % 2 == 0 ? DType::f16 : DType::bf16,
                                 .rule = bits == 1 ? QuantRule::midpoint : QuantRule::minimum};
        // KIVI's boundaries for T = 300, R = 128: keys 256, values 172.
        for (const auto& [n, keys, values] : {std::tuple<int64_t, int64_t, int64_t>{300, 256, 172},
                                              {700, 640, 572},
                                              {64, 64, 64},
                                              {40, 32, 0},
                                              {33, 0, 17}}) {
          const PackedLayer layer(shape, format, n, keys, values, 7);
          for (const int64_t q_len : {1, 5}) {
            const std::vector<float> q = normal(q_len * q_heads * head_dim, 8);
            const Shape decoded = layer.decoded_shape();
            Result want;
            {
              const ScopedCpuPath reference(CpuPath::reference);
              want = run(decoded, q, q_len, layer.decoded_runs());
            }
            for (const CpuPath path : available_cpu_paths()) {
              const ScopedCpuPath forced(path);
              const Result got = run(shape, q, q_len, layer.packed_runs());
              const std::string what = std::string(name_of(path)) + " bits=" + std::to_string(bits) +
                                       " d=" + std::to_string(head_dim) + " n=" + std::to_string(n);
              expect_close(got.out, want.out, tolerance(format), 1e-5, what);
              expect_close(got.lse, want.lse, tolerance(format), 1e-6, what);
              const Result exact = run(shape, q, q_len, ExactRuns(layer.packed_runs()).runs);
              expect_close(exact.out, want.out, 3e-5, 1e-5, what + " exact");
              expect_close(exact.lse, want.lse, 3e-5, 1e-6, what + " exact");
            }
          }
        }
      }
    }
  }
}

TEST(AttentionPacked, BiasesAreAddedToScoresOfPackedEntriesToo) {
  const Shape shape{6, 2, 64, 64, DType::bf16};
  const std::vector<float> q = normal(3 * 6 * 64, 8), biases = normal(700, 9);
  for (const int bits : {2, 8}) {
    const QuantFormat format{.bits = bits, .group_size = 32, .meta = DType::f16};
    const PackedLayer layer(shape, format, 700, 640, 572, 7);
    const auto biased = [&](std::vector<HeadRun> runs) {
      for (HeadRun& head : runs) head.bias = biases.data();
      return runs;
    };
    Result want;
    {
      const ScopedCpuPath reference(CpuPath::reference);
      want = run(layer.decoded_shape(), q, 3, biased(layer.decoded_runs()));
    }
    for (const CpuPath path : available_cpu_paths()) {
      const ScopedCpuPath forced(path);
      const Result got = run(shape, q, 3, biased(layer.packed_runs()));
      expect_close(got.out, want.out, tolerance(format), 1e-5, name_of(path));
      expect_close(got.lse, want.lse, tolerance(format), 1e-6, name_of(path));
    }
  }
}

/// Formats other than KIVI's: groups in tokens, no zeros, no scales, codebooks, floats of 8 bits.
std::vector<QuantFormat> token_formats() {
  static const std::vector<float> codebook = normal(256, 77);
  static const std::vector<float> ordered = [] {
    std::vector<float> levels;
    for (const int bits : {1, 2, 3, 4, 5, 8}) {
      std::vector<float> some(codebook.begin(), codebook.begin() + (1 << bits));
      std::sort(some.begin(), some.end());
      levels.insert(levels.end(), some.begin(), some.end());  // those of `bits` begin at 2^bits - 2, of 8 at 62
    }
    return levels;
  }();
  std::vector<QuantFormat> formats;
  for (const int bits : {1, 2, 3, 4, 5}) {
    formats.push_back({.bits = bits,
                       .group_size = 64,
                       .rule = bits % 2 == 0 ? QuantRule::norm : QuantRule::plain_norm,
                       .levels = Levels::codebook,
                       .codebook = ordered.data() + (1 << bits) - 2,
                       .token_groups = true});
    formats.push_back({.bits = bits,
                       .group_size = 32,
                       .meta = DType::f16,
                       .rule = bits == 1 ? QuantRule::midpoint : QuantRule::zero_point,
                       .token_groups = true});
    formats.push_back({.bits = bits, .group_size = 16, .rule = QuantRule::minimum, .token_groups = true, .clip = 0.8f});
  }
  formats.push_back({.bits = 8,
                     .group_size = 64,
                     .rule = QuantRule::none,
                     .levels = Levels::codebook,
                     .codebook = ordered.data() + 62,
                     .token_groups = true});
  formats.push_back({.bits = 5, .group_size = 32});  // keys grouped along tokens
  formats.push_back(
      {.bits = 8, .rule = QuantRule::absmax, .levels = Levels::uniform, .first_level = -127, .token_groups = true});
  formats.push_back(
      {.bits = 8, .meta = DType::f16, .rule = QuantRule::ggml_q8, .first_level = -128, .token_groups = true});
  formats.push_back(
      {.bits = 4, .meta = DType::f16, .rule = QuantRule::ggml_signed, .first_level = -8, .token_groups = true});
  for (const QuantRule rule : {QuantRule::mx, QuantRule::nv}) {
    formats.push_back({.bits = 4,
                       .group_size = rule == QuantRule::mx ? 32 : 16,
                       .rule = rule,
                       .levels = Levels::codebook,
                       .codebook = kLevelsE2M1,
                       .token_groups = true});
  }
  for (const Levels levels : {Levels::e4m3, Levels::e5m2}) {
    formats.push_back({.bits = 8, .rule = QuantRule::none, .levels = levels, .token_groups = true});
    formats.push_back({.bits = 8, .group_size = 64, .rule = QuantRule::absmax, .levels = levels, .token_groups = true});
  }
  return formats;
}

std::string text(const QuantFormat& f) {
  return "bits=" + std::to_string(f.bits) + " group=" + std::to_string(f.group_size) +
         " rule=" + std::to_string(static_cast<int>(f.rule)) + " levels=" + std::to_string(static_cast<int>(f.levels));
}

TEST(AttentionPacked, EveryFormatEqualsAttentionOnTheDecodedNumbersAndItselfOnBothPaths) {
  for (const QuantFormat& format : token_formats()) {
    for (const int64_t head_dim : {64, 128}) {
      for (const auto& [q_heads, kv_heads] : {std::pair<int64_t, int64_t>{3, 1}, {7, 1}}) {
        const Shape shape{q_heads, kv_heads, head_dim, head_dim, DType::bf16};
        const PackedLayer layer(shape, format, 300, format.token_groups ? 300 : 256, 172, 17);
        const std::vector<float> q = normal(3 * q_heads * head_dim, 18);
        for (const int64_t q_len : {1, 3}) {
          Result want;
          {
            const ScopedCpuPath reference(CpuPath::reference);
            want = run(layer.decoded_shape(), q, q_len, layer.decoded_runs());
          }
          Result first;
          for (const CpuPath path : available_cpu_paths()) {
            const ScopedCpuPath forced(path);
            const Result got = run(shape, q, q_len, layer.packed_runs());
            const std::string what = std::string(name_of(path)) + " " + text(format);
            expect_close(got.out, want.out, std::max(1e-4, tolerance(format)), 1e-5, what);
            expect_close(got.lse, want.lse, std::max(1e-4, tolerance(format)), 1e-6, what);
            if (path == CpuPath::reference) continue;
            if (first.out.empty()) first = got;
            expect_same_bits(got.out, first.out, what);
          }
        }
      }
    }
  }
}

double largest_error(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0;
  for (size_t i = 0; i < got.size(); ++i) error = std::max(error, std::fabs(static_cast<double>(got[i]) - want[i]));
  return error;
}

TEST(AttentionPacked, RoundingToIntegersIsFarBelowRoundingToBf16) {
  // Equal decoded numbers are attended as packed codes, with queries and weights rounded to 16-bit integers, and from
  // bf16 cells. Queries of three kinds: even, with a channel that outweighs the others, and long (few entries take
  // all).
  const Shape shape{3, 1, 64, 64, DType::bf16};
  constexpr int64_t n = 1024;
  for (const int bits : {1, 2, 4}) {
    for (const bool token_groups : {false, true}) {
      const PackedLayer layer(shape, {.bits = bits, .token_groups = token_groups}, n, n, n, 21);
      std::vector<std::vector<float>> rounded;
      std::vector<HeadRun> cells = layer.decoded_runs();
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        std::vector<float> rows(n * 64);
        const void* from = kind == CellKind::keys ? cells[0].keys : cells[0].values;
        load_rows({kind, DType::f32, 64, const_cast<void*>(from)}, 0, n, rows.data(), 64);
        rounded.emplace_back(static_cast<size_t>(cell_bytes(n, 64, DType::bf16) / 4));
        store_rows({kind, DType::bf16, 64, rounded.back().data()}, 0, n, rows.data(), 64);
      }
      cells[0].keys = rounded[0].data();
      cells[0].values = rounded[1].data();
      for (const auto& [outlier, length] : {std::pair{1.0f, 1.0f}, {20.0f, 1.0f}, {1.0f, 3.0f}}) {
        std::vector<float> q = normal(3 * 64, 22, length);
        for (size_t row = 0; row < 3; ++row) q[row * 64 + 5] *= outlier;
        Result want;
        {
          const ScopedCpuPath reference(CpuPath::reference);
          want = run(layer.decoded_shape(), q, 1, layer.decoded_runs());
        }
        const double bf16 = largest_error(run(shape, q, 1, cells).out, want.out);
        const double packed = largest_error(run(shape, q, 1, layer.packed_runs()).out, want.out);
        EXPECT_LT(packed, std::max(bf16 / 8, 1e-6)) << bits << " bits, " << token_groups << ", channel " << outlier
                                                    << ", length " << length << ": " << packed << " against " << bf16;
      }
    }
  }
}

TEST(AttentionPacked, ANumberThatIsNoneDoesNotVanishInIntegers) {
  const Shape shape{3, 1, 64, 64, DType::bf16};
  for (const bool token_groups : {false, true}) {
    const PackedLayer layer(shape, {.bits = 4, .token_groups = token_groups}, 64, 64, 64, 23);
    std::vector<float> q = normal(3 * 64, 24);
    q[64 + 7] = std::nanf("");
    for (const CpuPath path : available_cpu_paths()) {
      const ScopedCpuPath forced(path);
      const Result got = run(shape, q, 1, layer.packed_runs());
      for (size_t c = 0; c < 64; ++c) {
        EXPECT_TRUE(std::isfinite(got.out[c])) << name_of(path);
        EXPECT_TRUE(std::isnan(got.out[64 + c])) << name_of(path);
      }
    }
  }
}

TEST(AttentionPacked, ARowHasTheSameBitsAloneInAPassAndOnBothPaths) {
  const Shape shape{6, 2, 64, 64, DType::bf16};
  constexpr int64_t n = 1300, q_len = 40;
  for (const int bits : {1, 2, 3, 4}) {
    const PackedLayer layer(shape, {.bits = bits}, n, 1216, 1172, 9);
    const std::vector<float> q = normal(q_len * 384, 10);
    Result first;
    for (const CpuPath path : test::simd_paths()) {
      const ScopedCpuPath forced(path);
      for (const int64_t window : {0, 777}) {
        const Result pass = run(shape, q, q_len, layer.packed_runs(), true, window);
        if (window == 0) {
          if (first.out.empty()) first = pass;
          expect_same_bits(pass.out, first.out, name_of(path));
        }
        for (const int threads : {1, 2}) {
          const ScopedThreads scope(threads);
          for (const int64_t t : {0, 7, 39}) {
            std::vector<HeadRun> runs = layer.packed_runs();
            for (HeadRun& r : runs) r.entries = n - q_len + 1 + t;
            const Result alone = run(shape, {q.begin() + t * 384, q.begin() + (t + 1) * 384}, 1, runs, true, window);
            expect_same_bits(alone.out, {pass.out.begin() + t * 384, pass.out.begin() + (t + 1) * 384}, name_of(path));
          }
        }
      }
    }
  }
}

TEST(AttentionPacked, AnIndexOfEverythingGivesTheBitsOfTheWholeRun) {
  const Shape shape{6, 2, 64, 64, DType::f16};
  for (const int bits : {1, 2, 3, 4}) {
    const PackedLayer layer(shape, {.bits = bits}, 600, 512, 490, 11);
    std::vector<int32_t> all(600);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
    std::vector<HeadRun> indexed = layer.packed_runs();
    for (HeadRun& r : indexed) {
      r.index = all.data();
      r.index_count = 600;
    }
    const std::vector<float> q = normal(384, 12);
    for (const CpuPath path : available_cpu_paths()) {
      const ScopedCpuPath forced(path);
      expect_same_bits(run(shape, q, 1, indexed).out, run(shape, q, 1, layer.packed_runs()).out, name_of(path));
    }
  }
}

TEST(AttentionPacked, AnIndexLeavesOutWhatItDoesNotList) {
  const Shape shape{6, 2, 64, 64, DType::bf16};
  const PackedLayer layer(shape, {.bits = 2}, 900, 832, 800, 13);
  std::vector<int32_t> index;  // all but a few scattered entries, as when prefetched ones are taken out
  for (int32_t e = 0; e < 900; ++e) {
    if (e % 37 != 5 && (e < 100 || e > 140)) index.push_back(e);
  }
  const auto with_index = [&](std::vector<HeadRun> runs) {
    for (HeadRun& r : runs) {
      r.index = index.data();
      r.index_count = static_cast<int64_t>(index.size());
    }
    return runs;
  };
  for (const int64_t q_len : {1, 3}) {
    const std::vector<float> q = normal(q_len * 384, 14);
    for (const int64_t window : {0, 500}) {
      Result want;
      {
        const ScopedCpuPath reference(CpuPath::reference);
        want = run(layer.decoded_shape(), q, q_len, with_index(layer.decoded_runs()), true, window);
      }
      for (const CpuPath path : available_cpu_paths()) {
        const ScopedCpuPath forced(path);
        const Result got = run(shape, q, q_len, with_index(layer.packed_runs()), true, window);
        expect_close(got.out, want.out, tolerance({.bits = 2}), 1e-5, name_of(path));
        expect_close(got.lse, want.lse, tolerance({.bits = 2}), 1e-6, name_of(path));
      }
    }
  }
}

}  // namespace
}  // namespace kvarena::kernels
