#include "kernels/column_sums/column_sums.h"

#include <numeric>

#include "tests/kernels/attention_support.h"
#include "tests/kernels/packed_support.h"

namespace kvarena::kernels {
namespace {

using test::expect_close;
using test::expect_same_bits;
using test::Layer;
using test::normal;
using test::Shape;
using test::StateMemory;

std::vector<float> lse_of(const Shape& shape, const std::vector<float>& q, int64_t q_len,
                          const std::vector<HeadRun>& runs, bool causal) {
  StateMemory memory(shape, q_len);
  test::attend_one(shape, test::problem(shape, q.data(), q_len, runs, causal, memory));
  memory.finish();
  return memory.lse;
}

std::vector<float> sums_of(const Shape& shape, const float* q, int64_t q_len, const float* lse,
                           const std::vector<HeadRun>& runs, bool causal, std::vector<float> sums = {}) {
  const int64_t n = runs[0].index != nullptr ? runs[0].index_count : runs[0].entries;
  sums.resize(static_cast<size_t>(shape.q_heads * n));
  const ColumnSumsProblem problem{
      q,           q_len, shape.q_heads * shape.head_dim, shape.head_dim, lse, runs.data(), shape.dtype, causal, 0,
      sums.data(), n};
  column_sums({{&problem, 1},
               shape.q_heads,
               shape.kv_heads,
               shape.head_dim,
               1 / std::sqrt(static_cast<float>(shape.head_dim)),
               shape.arithmetic});
  return sums;
}

TEST(ColumnSums, EveryPathAgreesWithTheReference) {
  for (const int64_t n : {1, 15, 17, 300, 513}) {
    for (const auto& [dtype, arithmetic] : test::kKinds) {
      const Shape shape{6, 2, 64, 64, dtype, arithmetic};
      const Layer layer(shape, n, 3);
      const double rounding = arithmetic == Arithmetic::bf16 ? 0x1p-7 : 0;
      for (const int64_t q_len : {int64_t{1}, std::min<int64_t>(n, 32), n}) {
        const std::vector<float> q = normal(q_len * 384, 4);
        const std::vector<float> lse = lse_of(shape, q, q_len, layer.runs(), true);
        std::vector<float> want;
        {
          const ScopedCpuPath reference(CpuPath::reference);
          want = sums_of(shape, q.data(), q_len, lse.data(), layer.runs(), true);
        }
        for (const CpuPath path : test::simd_paths()) {
          const ScopedCpuPath forced(path);
          expect_close(sums_of(shape, q.data(), q_len, lse.data(), layer.runs(), true), want, 1e-5, 2e-5 + rounding,
                       name_of(path));
        }
      }
    }
  }
}

TEST(ColumnSums, ProbabilitiesUnderBiasesSumToOneAndAgreeWithTheReference) {
  const Shape shape{6, 2, 64, 64, DType::bf16};
  const Layer layer(shape, 700, 5);
  const std::vector<float> q = normal(384, 6), biases = normal(700, 7);
  std::vector<HeadRun> runs = layer.runs();
  for (HeadRun& head : runs) head.bias = biases.data();
  std::vector<float> want;
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    const std::vector<float> lse = lse_of(shape, q, 1, runs, true);
    const std::vector<float> sums = sums_of(shape, q.data(), 1, lse.data(), runs, true);
    for (size_t h = 0; h < 6; ++h) {
      EXPECT_NEAR(std::accumulate(sums.begin() + h * 700, sums.begin() + (h + 1) * 700, 0.0), 1, 1e-5) << name_of(path);
    }
    if (want.empty()) want = sums;
    expect_close(sums, want, 1e-6, 2e-5, name_of(path));
  }
}

TEST(ColumnSums, ProbabilitiesOfEveryQuerySumToOne) {
  for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::bf16}) {
    const Shape shape{6, 2, 64, 64, DType::bf16, arithmetic};
    const Layer layer(shape, 700, 5);
    const std::vector<float> q = normal(700 * 384, 6);
    for (const CpuPath path : test::simd_paths()) {
      const ScopedCpuPath forced(path);
      const std::vector<float> lse = lse_of(shape, q, 700, layer.runs(), true);
      const std::vector<float> sums = sums_of(shape, q.data(), 700, lse.data(), layer.runs(), true);
      for (int64_t h = 0; h < 6; ++h) {
        double total = 0;
        for (int64_t e = 0; e < 700; ++e) total += sums[static_cast<size_t>(h * 700 + e)];
        EXPECT_NEAR(total, 700, 0.01) << name_of(path) << " head " << h;
      }
    }
  }
}

TEST(ColumnSums, APromptInPiecesGivesTheBitsOfOneCall) {
  const Shape shape{6, 2, 64, 64, DType::f32};
  constexpr int64_t n = 500;
  const Layer layer(shape, n, 7);
  const std::vector<float> q = normal(n * 384, 8);
  std::vector<float> first;
  for (const CpuPath path : test::simd_paths()) {
    const ScopedCpuPath forced(path);
    const std::vector<float> lse = lse_of(shape, q, n, layer.runs(), true);
    const std::vector<float> whole = sums_of(shape, q.data(), n, lse.data(), layer.runs(), true);
    if (first.empty()) first = whole;
    expect_same_bits(whole, first, name_of(path));
    for (const int threads : {1, 2}) {
      const ScopedThreads scope(threads);
      std::vector<float> sums(static_cast<size_t>(6 * n));
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 130}, {130, n}}) {
        // The first `end` entries, with rows of the sums at the distance of the whole.
        const std::vector<HeadRun> runs = layer.runs(end);
        const ColumnSumsProblem problem{q.data() + begin * 384,
                                        end - begin,
                                        384,
                                        64,
                                        lse.data() + begin * 6,
                                        runs.data(),
                                        DType::f32,
                                        true,
                                        0,
                                        sums.data(),
                                        n};
        column_sums({{&problem, 1}, 6, 2, 64, 0.125f});
      }
      expect_same_bits(sums, whole, std::string(name_of(path)) + " in pieces");
    }
  }
}

TEST(ColumnSums, AnIndexedRunHasTheSumsOfItsEntries) {
  const Shape shape{6, 2, 64, 64, DType::bf16};
  const Layer layer(shape, 800, 9);
  const std::vector<float> q = normal(4 * 384, 10);
  std::vector<int32_t> index;
  for (int32_t e = 0; e < 800; e += e % 64 < 40 ? 1 : 5) index.push_back(e);
  std::vector<HeadRun> indexed = layer.runs();
  for (HeadRun& r : indexed) {
    r.index = index.data();
    r.index_count = static_cast<int64_t>(index.size());
  }
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    const std::vector<float> lse = lse_of(shape, q, 4, layer.runs(), true);
    const std::vector<float> all = sums_of(shape, q.data(), 4, lse.data(), layer.runs(), true);
    const std::vector<float> some = sums_of(shape, q.data(), 4, lse.data(), indexed, true);
    for (size_t h = 0; h < 6; ++h) {
      for (size_t i = 0; i < index.size(); ++i) {
        ASSERT_EQ(some[h * index.size() + i], all[h * 800 + static_cast<size_t>(index[i])]) << name_of(path);
      }
    }
  }
}

TEST(ColumnSums, PackedKeysAreScoredAsTheyLie) {
  const Shape shape{6, 2, 64, 64, DType::bf16};
  constexpr int64_t n = 300, packed = 256;
  for (const int bits : {1, 4}) {
    std::vector<test::PackedMemory> memory;
    std::vector<std::vector<float>> rest, decoded;
    std::vector<HeadRun> runs, decoded_runs;
    for (uint64_t h = 0; h < 2; ++h) {
      std::vector<float> rows = normal(n * 64, 20 + h);
      memory.emplace_back(CellKind::keys, QuantFormat{.bits = bits}, 64, packed);
      encode_rows(memory.back().view, 0, packed, rows.data(), 64);
      decode_rows(memory.back().view, 0, packed, rows.data(), 64);
      rest.emplace_back(static_cast<size_t>(cell_bytes(n - packed, 64, DType::f32) / 4));
      store_rows({CellKind::keys, DType::f32, 64, rest.back().data()}, 0, n - packed, rows.data() + packed * 64, 64);
      decoded.emplace_back(static_cast<size_t>(cell_bytes(n, 64, DType::f32) / 4));
      store_rows({CellKind::keys, DType::f32, 64, decoded.back().data()}, 0, n, rows.data(), 64);
    }
    for (size_t h = 0; h < 2; ++h) {
      runs.push_back({rest[h].data(), nullptr, n, nullptr, 0, &memory[h].view, packed});
      decoded_runs.push_back({decoded[h].data(), nullptr, n});
    }
    Shape f32 = shape;
    f32.dtype = DType::f32;
    const std::vector<float> q = normal(3 * 384, 22), lse(18, 4.0f);
    const ScopedCpuPath reference(CpuPath::reference);
    const std::vector<float> want = sums_of(f32, q.data(), 3, lse.data(), decoded_runs, true);
    for (const CpuPath path : available_cpu_paths()) {
      const ScopedCpuPath forced(path);
      // exp(score - lse) of scores in integers: relative, what attention_packed_test allows a score
      expect_close(sums_of(f32, q.data(), 3, lse.data(), runs, true), want, 1e-6, 2e-4, name_of(path));
    }
  }
}

TEST(ColumnSums, AQueryThatSawNothingAddsNothing) {
  const Shape shape{2, 1, 64, 64, DType::f32};
  const Layer layer(shape, 20, 11);
  const std::vector<float> q = normal(128, 12), lse(2, -INFINITY);
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    for (const float s : sums_of(shape, q.data(), 1, lse.data(), layer.runs(), true)) EXPECT_EQ(s, 0.0f);
  }
}

}  // namespace
}  // namespace kvarena::kernels
