#include "kernels/attention/attention.h"

#include "tests/kernels/attention_support.h"

namespace kvarena::kernels {
namespace {

using test::attend_one;
using test::expect_close;
using test::expect_same_bits;
using test::Layer;
using test::normal;
using test::problem;
using test::Shape;
using test::StateMemory;

std::string describe(const Shape& s, int64_t q_len, int64_t entries, CpuPath path) {
  return std::string(name_of(path)) + " " + name_of(s.dtype) + " q_heads=" + std::to_string(s.q_heads) +
         " kv_heads=" + std::to_string(s.kv_heads) + " head_dim=" + std::to_string(s.head_dim) + "/" +
         std::to_string(s.value_dim) + " q_len=" + std::to_string(q_len) + " entries=" + std::to_string(entries);
}

/// Both results of one call.
struct Result {
  std::vector<float> out, lse;
};

Result run(const Shape& shape, const std::vector<float>& q, int64_t q_len, const std::vector<HeadRun>& runs,
           bool causal, int64_t window = 0) {
  StateMemory memory(shape, q_len);
  AttendProblem p = problem(shape, q.data(), q_len, runs, causal, memory);
  p.window = window;
  attend_one(shape, p);
  memory.finish();
  return {memory.out, memory.lse};
}

/// Scores are about N(0,1), so weights and values are of size one: 2e-5 is a hundred roundings, of bf16 numbers 2^-6
/// four.
void expect_agrees(const Result& got, const Result& want, const std::string& what,
                   Arithmetic arithmetic = Arithmetic::exact) {
  const double absolute = arithmetic == Arithmetic::bf16 ? 0x1p-6 : 2e-5;
  expect_close(got.out, want.out, absolute, 1e-5, what + " out");
  expect_close(got.lse, want.lse, absolute, 1e-6, what + " lse");
}

TEST(Attention, EveryPathAgreesWithTheReferenceOverTheGrid) {
  for (const auto& [q_heads, kv_heads] : {std::pair<int64_t, int64_t>{2, 2}, {6, 2}, {4, 1}, {7, 1}}) {
    for (const int64_t head_dim : {64, 80, 128}) {
      for (const int64_t entries : {0, 1, 15, 16, 17, 511, 512, 513, 1100}) {
        for (const auto& [dtype, arithmetic] : test::kKinds) {
          const Shape shape{q_heads, kv_heads, head_dim, head_dim, dtype, arithmetic};
          const Layer layer(shape, entries, 100 + static_cast<uint64_t>(entries));
          const std::vector<HeadRun> runs = layer.runs();
          for (const int64_t q_len : {1, 5}) {
            if (entries > 600 && q_len > 1 && head_dim != 64) continue;
            const std::vector<float> q = normal(q_len * q_heads * head_dim, 17);
            Result want;
            {
              const ScopedCpuPath reference(CpuPath::reference);
              want = run(shape, q, q_len, runs, true);
            }
            for (const CpuPath path : test::simd_paths()) {
              const ScopedCpuPath forced(path);
              expect_agrees(run(shape, q, q_len, runs, true), want, describe(shape, q_len, entries, path), arithmetic);
            }
          }
        }
      }
    }
  }
}

TEST(Attention, TwoEntriesByHand) {
  const Shape shape{1, 1, 16, 16, DType::f32};
  std::vector<float> keys(16 * 16), values(16 * 16), q(16);
  q[3] = 4;  // scale 1/4: score = key[3]
  std::vector<float> key_rows(32), value_rows(32);
  key_rows[3] = std::log(3.0f);
  value_rows[0] = 1;
  value_rows[16] = 5;
  store_rows({CellKind::keys, DType::f32, 16, keys.data()}, 0, 2, key_rows.data(), 16);
  store_rows({CellKind::values, DType::f32, 16, values.data()}, 0, 2, value_rows.data(), 16);
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    const Result r = run(shape, q, 1, {{keys.data(), values.data(), 2}}, true);
    EXPECT_NEAR(r.out[0], 0.75f * 1 + 0.25f * 5, 1e-6) << name_of(path);
    EXPECT_NEAR(r.lse[0], std::log(4.0f), 1e-6) << name_of(path);
  }
}

TEST(Attention, KeysAndValuesMayDifferInWidth) {
  const Shape shape{4, 2, 96, 64, DType::bf16};
  const Layer layer(shape, 700, 3);
  const std::vector<float> q = normal(3 * 4 * 96, 4);
  const ScopedCpuPath reference(CpuPath::reference);
  const Result want = run(shape, q, 3, layer.runs(), true);
  for (const CpuPath path : test::simd_paths()) {
    const ScopedCpuPath forced(path);
    expect_agrees(run(shape, q, 3, layer.runs(), true), want, name_of(path));
  }
}

TEST(Attention, PrefillVerificationAndDecodeGiveTheSameBits) {
  for (const auto& [dtype, arithmetic] : test::kKinds) {
    if (dtype == DType::f16) continue;
    const Shape shape{6, 2, 64, 64, dtype, arithmetic};
    constexpr int64_t n = 1050;
    const Layer layer(shape, n, 8);
    const int64_t token = shape.q_heads * shape.head_dim;
    const std::vector<float> q = normal(n * token, 9);
    for (const CpuPath path : test::simd_paths()) {
      const ScopedCpuPath forced(path);
      const Result prefill = run(shape, q, n, layer.runs(), true);
      for (const int64_t q_len : {1, 2, 7, 33, 64}) {
        for (const int64_t entries : {64, 511, 512, 513, 560, 1050}) {
          for (const int threads : {1, 2}) {
            const ScopedThreads scope(threads);
            const std::vector<float> some(q.begin() + (entries - q_len) * token, q.begin() + entries * token);
            const Result r = run(shape, some, q_len, layer.runs(entries), true);
            const auto part = [&](const std::vector<float>& all, int64_t width) {
              return std::vector<float>(all.begin() + (entries - q_len) * width, all.begin() + entries * width);
            };
            const std::string what = describe(shape, q_len, entries, path) + " threads=" + std::to_string(threads);
            expect_same_bits(r.out, part(prefill.out, token), what);
            expect_same_bits(r.lse, part(prefill.lse, shape.q_heads), what);
          }
        }
      }
    }
  }
}

TEST(Attention, ASequenceHasTheSameBitsAloneAndInARaggedBatch) {
  const Shape shape{6, 2, 64, 64, DType::bf16};
  const int64_t lengths[] = {1, 30, 2500, 700, 16, 0, 513};
  const int64_t q_lens[] = {1, 30, 1, 9, 2, 0, 1};
  for (const CpuPath path : test::simd_paths()) {
    const ScopedCpuPath forced(path);
    for (const int threads : {1, 2}) {
      const ScopedThreads scope(threads);
      std::vector<Layer> layers;
      std::vector<std::vector<HeadRun>> runs;
      std::vector<std::vector<float>> q;
      std::vector<StateMemory> memory;
      for (size_t i = 0; i < std::size(lengths); ++i) {
        layers.emplace_back(shape, lengths[i], 50 + i);
        q.push_back(normal(q_lens[i] * shape.q_heads * shape.head_dim, 70 + i));
        memory.emplace_back(shape, q_lens[i]);
      }
      for (const Layer& layer : layers) runs.push_back(layer.runs());
      std::vector<AttendProblem> problems;
      for (size_t i = 0; i < layers.size(); ++i) {
        problems.push_back(problem(shape, q[i].data(), q_lens[i], runs[i], true, memory[i]));
      }
      attend({problems, shape.q_heads, shape.kv_heads, shape.head_dim, shape.value_dim, 0.125f});
      for (size_t i = 0; i < layers.size(); ++i) {
        memory[i].finish();
        const Result alone = run(shape, q[i], q_lens[i], runs[i], true);
        expect_same_bits(memory[i].out, alone.out, "sequence " + std::to_string(i));
        expect_same_bits(memory[i].lse, alone.lse, "sequence " + std::to_string(i));
      }
    }
  }
}

TEST(Attention, EveryPathGivesEqualBits) {
  for (const test::Kind& kind : test::kKinds) {
    const Shape shape{7, 1, 80, 80, kind.dtype, kind.arithmetic};
    const Layer layer(shape, 1234, 5);
    const std::vector<float> q = normal(20 * 7 * 80, 6);
    const auto with = [&](CpuPath path) {
      const ScopedCpuPath forced(path);
      return run(shape, q, 20, layer.runs(), true);
    };
    for (const CpuPath path : test::simd_paths()) {
      const Result a = with(test::simd_paths().front()), b = with(path);
      expect_same_bits(a.out, b.out, name_of(path) + (" " + test::describe(kind)));
      expect_same_bits(a.lse, b.lse, name_of(path) + (" " + test::describe(kind)));
    }
  }
}

TEST(Attention, RaggedHeadsEachSeeTheirOwnEntries) {
  const Shape shape{6, 3, 64, 64, DType::f16};
  const Layer layer(shape, 900, 12);
  std::vector<HeadRun> runs = layer.runs();
  runs[0].entries = 0;
  runs[1].entries = 77;
  const std::vector<float> q = normal(4 * 6 * 64, 13);
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    const Result r = run(shape, q, 4, runs, false);
    const Result full = run(shape, q, 4, layer.runs(), false);
    for (int64_t row = 0; row < 4 * 6; ++row) {
      const int64_t kv_head = row % 6 / 2;
      const bool zero =
          std::all_of(r.out.begin() + row * 64, r.out.begin() + (row + 1) * 64, [](float x) { return x == 0; });
      EXPECT_EQ(zero, kv_head == 0) << name_of(path) << " row " << row;
      EXPECT_EQ(std::isinf(r.lse[static_cast<size_t>(row)]), kv_head == 0);
      EXPECT_EQ(r.lse[static_cast<size_t>(row)] == full.lse[static_cast<size_t>(row)], kv_head == 2) << name_of(path);
    }
  }
}

class IndexedAttention : public ::testing::TestWithParam<test::Kind> {};

TEST_P(IndexedAttention, AnIndexOfEverythingGivesTheBitsOfTheDenseRun) {
  const Shape shape{6, 2, 64, 64, GetParam().dtype, GetParam().arithmetic};
  const Layer layer(shape, 1111, 14);
  std::vector<int32_t> all(1111);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  std::vector<HeadRun> runs = layer.runs();
  for (HeadRun& r : runs) {
    r.index = all.data();
    r.index_count = 1111;
  }
  const std::vector<float> q = normal(9 * 6 * 64, 15);
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    expect_same_bits(run(shape, q, 9, runs, true).out, run(shape, q, 9, layer.runs(), true).out, name_of(path));
  }
}

TEST_P(IndexedAttention, ARunOfListedEntriesEqualsTheGatheredRun) {
  const Shape shape{6, 2, 64, 64, GetParam().dtype, GetParam().arithmetic};
  constexpr int64_t n = 2000;
  const Layer layer(shape, n, 16);
  // Single entries, whole pages at odd list positions, a partial page at the end.
  std::vector<int32_t> single, pages;
  for (int32_t e = 3; e < n; e += 1 + e % 7) single.push_back(e);
  pages = {0, 1, 2};
  for (const int32_t page : {2, 3, 9, 40, 41, 77, 100, 124}) {
    for (int32_t e = 0; e < 16; ++e) pages.push_back(page * 16 + e);
  }
  const std::vector<float> q = normal(6 * 64, 18);
  for (const std::vector<int32_t>& index : {single, pages}) {
    const auto count = static_cast<int64_t>(index.size());
    std::vector<HeadRun> indexed = layer.runs(), gathered = layer.runs();
    std::vector<std::vector<float>> memory;
    for (int64_t h = 0; h < 2; ++h) {
      HeadRun& from = indexed[static_cast<size_t>(h)];
      from.index = index.data();
      from.index_count = count;
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        memory.emplace_back(static_cast<size_t>(cell_bytes(count, 64, shape.dtype) / 4));
        void* source = const_cast<void*>(kind == CellKind::keys ? from.keys : from.values);
        gather_entries({kind, shape.dtype, 64, source}, index.data(), count,
                       {kind, shape.dtype, 64, memory.back().data()}, 0);
      }
      gathered[static_cast<size_t>(h)] = {memory[memory.size() - 2].data(), memory.back().data(), count};
    }
    for (const CpuPath path : available_cpu_paths()) {
      const ScopedCpuPath forced(path);
      expect_same_bits(run(shape, q, 1, indexed, false).out, run(shape, q, 1, gathered, false).out, name_of(path));
    }
  }
}

TEST_P(IndexedAttention, ACausalRunHidesLaterEntries) {
  const Shape shape{2, 1, 64, 64, GetParam().dtype, GetParam().arithmetic};
  const Layer layer(shape, 300, 19);
  const std::vector<int32_t> index{0, 5, 290, 295, 296, 297, 298, 299};
  std::vector<HeadRun> runs = layer.runs();
  runs[0].index = index.data();
  runs[0].index_count = 8;
  const std::vector<float> q = normal(4 * 2 * 64, 20);
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    const Result all = run(shape, q, 4, runs, true);
    for (int64_t t = 0; t < 4; ++t) {
      std::vector<HeadRun> cut = layer.runs(297 + t);
      cut[0].index = index.data();
      cut[0].index_count = 5 + t;
      const Result one = run(shape, {q.begin() + t * 128, q.begin() + (t + 1) * 128}, 1, cut, true);
      expect_same_bits(one.out, {all.out.begin() + t * 128, all.out.begin() + (t + 1) * 128}, name_of(path));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, IndexedAttention, ::testing::ValuesIn(test::kKinds), [](const auto& info) {
  return std::string(name_of(info.param.dtype)) + (info.param.arithmetic == Arithmetic::bf16 ? "_rounded" : "");
});

TEST(Attention, ASlidingWindowSeesItsLastEntriesOnly) {
  const Shape shape{6, 2, 64, 64, DType::f32};
  constexpr int64_t n = 1300, q_len = 70, window = 600;
  const Layer layer(shape, n, 22);
  const std::vector<float> q = normal(q_len * 6 * 64, 23);
  Result want;
  {
    const ScopedCpuPath reference(CpuPath::reference);
    want = run(shape, q, q_len, layer.runs(), true, window);
  }
  const ScopedCpuPath reference(CpuPath::reference);
  const Result unlimited = run(shape, q, q_len, layer.runs(), true);
  EXPECT_GT(std::fabs(want.lse[0] - unlimited.lse[0]), 0.01);
  for (const CpuPath path : test::simd_paths()) {
    const ScopedCpuPath forced(path);
    const Result batch = run(shape, q, q_len, layer.runs(), true, window);
    expect_agrees(batch, want, name_of(path));
    for (const int64_t t : {0L, 13L, 69L}) {
      const std::vector<float> one(q.begin() + t * 384, q.begin() + (t + 1) * 384);
      const Result alone = run(shape, one, 1, layer.runs(n - q_len + 1 + t), true, window);
      expect_same_bits(alone.out, {batch.out.begin() + t * 384, batch.out.begin() + (t + 1) * 384}, name_of(path));
    }
  }
}

/// A query at position p sees the entries from the last multiple of the window on, however many were dropped in front.
TEST(Attention, AChunkedWindowBeginsAtItsMultiples) {
  const Shape shape{6, 2, 64, 64, DType::f32};
  constexpr int64_t n = 1300, q_len = 70, chunk = 600,
                    first = 40;  // positions 40 .. 1339: queries pass 1200 at entry 1160
  const Layer layer(shape, n, 22);
  const std::vector<float> q = normal(q_len * 6 * 64, 23);
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    for (const int64_t entries : {int64_t{1180}, n}) {
      StateMemory memory(shape, q_len);
      const std::vector<HeadRun> runs = layer.runs(entries);
      AttendProblem p = problem(shape, q.data(), q_len, runs, true, memory);
      p.window = chunk;
      p.chunked = true;
      p.first_position = first;
      attend_one(shape, p);
      memory.finish();
      for (const int64_t t : {0L, 49L, 50L, 69L}) {
        const int64_t own = first + entries - q_len + t, seen = own % chunk + 1;
        const std::vector<float> one(q.begin() + t * 384, q.begin() + (t + 1) * 384);
        const Result alone = run(shape, one, 1, layer.runs(entries - q_len + 1 + t), true, seen);
        expect_close({memory.out.begin() + t * 384, memory.out.begin() + (t + 1) * 384}, alone.out, 2e-6, 1e-6,
                     describe(shape, q_len, entries, path));
      }
    }
  }
}

/// A sink is an entry of its score whose value is 0: all heads of a run that holds such an entry give the same.
TEST(Attention, ASinkIsAnEntryWithoutValue) {
  const Shape shape{6, 2, 64, 64, DType::f32};
  constexpr int64_t n = 700;
  const Layer layer(shape, n, 31);
  const std::vector<float> q = normal(3 * 6 * 64, 32), sinks{-3.0f, 0.0f, 0.5f, 2.0f, 7.0f, 60.0f};
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    const Result without = run(shape, q, 3, layer.runs(), true);
    StateMemory memory(shape, 3);
    init_attention(memory.state(), 3, 6, 64, sinks.data());
    attend_one(shape, problem(shape, q.data(), 3, layer.runs(), true, memory));
    memory.finish();
    for (size_t row = 0; row < 18; ++row) {
      const double all = std::exp(double{without.lse[row]}) + std::exp(double{sinks[row % 6]});
      const double share = std::exp(double{without.lse[row]}) / all;
      EXPECT_NEAR(memory.lse[row], std::log(all), 1e-5) << name_of(path);
      for (size_t c = 0; c < 64; ++c) {
        EXPECT_NEAR(memory.out[row * 64 + c], share * double{without.out[row * 64 + c]}, 2e-6) << name_of(path);
      }
    }
  }
  StateMemory nothing(shape, 1);
  init_attention(nothing.state(), 1, 6, 64, sinks.data());
  nothing.finish();
  EXPECT_EQ(nothing.lse, sinks);
  EXPECT_EQ(nothing.out, std::vector<float>(384, 0.0f));
}

TEST(Attention, BiasesAreAddedToTheScoresOfWhatIsListed) {
  constexpr int64_t n = 1100, q_len = 5;
  std::vector<int32_t> index;
  for (int32_t e = 3; e < n; e += 1 + e % 3) index.push_back(e);
  const std::vector<float> biases = normal(n, 40), zeros(n);
  for (const test::Kind& kind : test::kKinds) {
    const Shape shape{6, 2, 64, 64, kind.dtype, kind.arithmetic};
    const Layer layer(shape, n, 41);
    const std::vector<float> q = normal(q_len * 6 * 64, 42);
    for (const bool listed : {false, true}) {
      const auto with = [&](const float* bias) {
        std::vector<HeadRun> runs = layer.runs();
        for (HeadRun& head : runs) {
          head.index = listed ? index.data() : nullptr;
          head.index_count = listed ? std::ssize(index) : 0;
          head.bias = bias;
        }
        return runs;
      };
      Result want;
      {
        const ScopedCpuPath reference(CpuPath::reference);
        want = run(shape, q, q_len, with(biases.data()), true);
      }
      for (const CpuPath path : test::simd_paths()) {
        const ScopedCpuPath forced(path);
        const Result got = run(shape, q, q_len, with(biases.data()), true);
        expect_agrees(got, want, name_of(path) + (" " + test::describe(kind)), kind.arithmetic);
        expect_same_bits(run(shape, q, q_len, with(zeros.data()), true).out,
                         run(shape, q, q_len, with(nullptr), true).out, "biases of 0");
        const std::vector<float> last(q.end() - 6 * 64, q.end());
        const ScopedThreads two(2);
        const Result alone = run(shape, last, 1, with(biases.data()), true);
        expect_same_bits(alone.out, {got.out.end() - 6 * 64, got.out.end()}, name_of(path));
      }
    }
  }
}

/// An entry under the bias log 3 is three entries.
TEST(Attention, ABiasIsALogWeight) {
  const Shape shape{2, 1, 16, 16, DType::f32};
  const std::vector<float> rows = normal(2 * 16, 43), q = normal(2 * 16, 44), bias{0, std::log(3.0F)};
  std::vector<float> repeated = rows;
  for (int i = 0; i < 2; ++i) repeated.insert(repeated.end(), rows.begin() + 16, rows.end());
  std::vector<float> two(16 * 16), four(16 * 16), two_values(16 * 16), four_values(16 * 16);
  for (const auto& [kind, few, many] :
       {std::tuple(CellKind::keys, &two, &four), {CellKind::values, &two_values, &four_values}}) {
    store_rows({kind, DType::f32, 16, few->data()}, 0, 2, rows.data(), 16);
    store_rows({kind, DType::f32, 16, many->data()}, 0, 4, repeated.data(), 16);
  }
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    const Result weighted =
        run(shape, q, 1, {{.keys = two.data(), .values = two_values.data(), .entries = 2, .bias = bias.data()}}, false);
    const Result plain = run(shape, q, 1, {{.keys = four.data(), .values = four_values.data(), .entries = 4}}, false);
    expect_close(weighted.out, plain.out, 2e-6, 1e-5, name_of(path));
    expect_close(weighted.lse, plain.lse, 2e-6, 1e-6, name_of(path));
  }
}

TEST(Attention, FoldingSegmentsEqualsOneCache) {
  const Shape shape{6, 2, 64, 64, DType::bf16};
  constexpr int64_t n = 1500;
  const Layer layer(shape, n, 24);
  const std::vector<float> q = normal(3 * 6 * 64, 25);
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    const Result whole = run(shape, q, 3, layer.runs(), true);
    for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{0, 4, 1490, n}, {0, 512, n}, {0, 700, 700, n}}) {
      StateMemory memory(shape, 3);
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        std::vector<std::vector<float>> cells;
        std::vector<HeadRun> runs;
        for (int64_t h = 0; h < 2; ++h) {
          cells.push_back(layer.cells(CellKind::keys, h, cuts[i], cuts[i + 1]));
          cells.push_back(layer.cells(CellKind::values, h, cuts[i], cuts[i + 1]));
        }
        for (size_t h = 0; h < 2; ++h)
          runs.push_back({cells[2 * h].data(), cells[2 * h + 1].data(), cuts[i + 1] - cuts[i]});
        attend_one(shape, problem(shape, q.data(), 3, runs, cuts[i + 1] == n, memory));
      }
      memory.finish();
      expect_close(memory.out, whole.out, 2e-6, 1e-5, "out");
      expect_close(memory.lse, whole.lse, 2e-6, 1e-6, "lse");
      if (cuts[1] == kChunk && path != CpuPath::reference) expect_same_bits(memory.out, whole.out, "cut at a chunk");
    }
  }
}

TEST(Attention, MergingStatesEqualsFolding) {
  const Shape shape{6, 2, 64, 64, DType::f32};
  const Layer a(shape, 100, 26), b(shape, 200, 27);
  const std::vector<float> q = normal(6 * 64, 28);
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    StateMemory folded(shape, 1), first(shape, 1), second(shape, 1), empty(shape, 1);
    const std::vector<HeadRun> a_runs = a.runs(), b_runs = b.runs();
    attend_one(shape, problem(shape, q.data(), 1, a_runs, true, folded));
    attend_one(shape, problem(shape, q.data(), 1, b_runs, true, folded));
    attend_one(shape, problem(shape, q.data(), 1, a_runs, true, first));
    attend_one(shape, problem(shape, q.data(), 1, b_runs, true, second));
    merge_attention(first.state(), empty.state(), 6, 64);
    merge_attention(first.state(), second.state(), 6, 64);
    folded.finish();
    first.finish();
    expect_close(first.out, folded.out, 1e-6, 1e-6, name_of(path));
    expect_close(first.lse, folded.lse, 1e-6, 1e-6, name_of(path));
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  const Shape shape{2, 1, 64, 64, DType::f32};
  const Layer layer(shape, 600, 29);
  std::vector<float> q = normal(2 * 64, 30, 300.0f);
  const ScopedCpuPath reference(CpuPath::reference);
  const Result want = run(shape, q, 1, layer.runs(), true);
  for (const CpuPath path : test::simd_paths()) {
    const ScopedCpuPath forced(path);
    const Result got = run(shape, q, 1, layer.runs(), true);
    expect_close(got.out, want.out, 5e-3, 1e-3, name_of(path));  // scores near 1000 carry 1e-4 of rounding
    expect_close(got.lse, want.lse, 1e-3, 1e-6, name_of(path));
  }
}

TEST(Attention, ImpossibleShapesAreRefused) {
  EXPECT_THROW(attend({{}, 5, 2, 64, 64, 1}), std::logic_error);
  EXPECT_THROW(attend({{}, 4, 2, 60, 60, 1}), std::logic_error);
}

TEST(Attention, ValuesAreAsWideAsKeysWhereNothingElseIsSaid) {
  const Shape shape{4, 2, 32, 32};
  const Layer layer(shape, 20, 31);
  const std::vector<HeadRun> runs = layer.runs();
  const std::vector<float> q = normal(3 * 4 * 32, 32);
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    const Result want = run(shape, q, 3, runs, true);
    StateMemory memory(shape, 3);
    const AttendProblem p = problem(shape, q.data(), 3, runs, true, memory);
    attend({.problems = {&p, 1}, .q_heads = 4, .kv_heads = 2, .head_dim = 32, .scale = 1 / std::sqrt(32.0F)});
    memory.finish();
    expect_same_bits(memory.out, want.out, name_of(path));
  }
}

}  // namespace
}  // namespace kvarena::kernels
