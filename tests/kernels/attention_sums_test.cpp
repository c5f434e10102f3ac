#include "kernels/attention_sums/attention_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "kernels/attention_sums/gumbel_noise.h"
#include "kernels/column_sums/column_sums.h"
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

/// All sums there are, of one layer with `n` entries.
class Sums final : public AttentionReader {
 public:
  Sums(const Shape& shape, int64_t n, int64_t before, float tau)
      : n_(n),
        before_(before),
        tau_(tau),
        probabilities(static_cast<size_t>(shape.q_heads * n)),
        means(static_cast<size_t>(shape.kv_heads * n)),
        squares(means.size()),
        perturbed(means.size()),
        next_(static_cast<size_t>(shape.kv_heads), 0) {}

  void read(const ProbabilityRows& rows) override {
    int64_t& next = next_[static_cast<size_t>(rows.kv_head)];
    EXPECT_GE(rows.first_token, next) << "tokens come in order";
    next = rows.first_token + rows.tokens;
    const int64_t at = rows.kv_head * n_;
    add_probabilities(rows, probabilities.data() + at * rows.group, n_);
    add_moments(rows, means.data() + at, squares.data() + at);
    std::vector<uint64_t> keys;
    for (int64_t r = 0; r < rows.tokens * rows.group; ++r) {
      const auto query = static_cast<uint64_t>((before_ + rows.first_token) * rows.group + r);
      keys.push_back(query << 32 | static_cast<uint64_t>(rows.kv_head));
    }
    add_perturbed(rows, keys.data(), tau_, perturbed.data() + at);
  }

 private:
  int64_t n_;
  int64_t before_;  // tokens of earlier calls
  float tau_;

 public:
  std::vector<float> probabilities;              // [q_heads, n]
  std::vector<float> means, squares, perturbed;  // [kv_heads, n]

 private:
  std::vector<int64_t> next_;
};

struct Read {
  StateMemory memory;
  Sums sums;
};

/// Queries of the newest q_len of the runs' entries, with a reader.
Read read(const Shape& shape, const float* q, int64_t q_len, const std::vector<HeadRun>& runs, int64_t window = 0,
          float tau = 1) {
  Read result{StateMemory(shape, q_len), Sums(shape, runs[0].entries, 0, tau)};
  AttendProblem problem = test::problem(shape, q, q_len, runs, true, result.memory);
  problem.window = window;
  problem.reader = &result.sums;
  test::attend_one(shape, problem);
  result.memory.finish();
  return result;
}

std::vector<float> column_sums_of(const Shape& shape, const std::vector<float>& q, int64_t q_len,
                                  const std::vector<float>& lse, const std::vector<HeadRun>& runs, int64_t window) {
  const int64_t n = runs[0].index != nullptr ? runs[0].index_count : runs[0].entries;
  std::vector<float> sums(static_cast<size_t>(shape.q_heads * n));
  const ColumnSumsProblem problem{q.data(),       q_len,      shape.q_heads * shape.head_dim,
                                  shape.head_dim, lse.data(), runs.data(),
                                  shape.dtype,    true,       window,
                                  sums.data(),    n};
  column_sums({{&problem, 1},
               shape.q_heads,
               shape.kv_heads,
               shape.head_dim,
               1 / std::sqrt(static_cast<float>(shape.head_dim))});
  return sums;
}

const Shape kShapes[] = {
    {6, 2, 64, 64, DType::f32}, {4, 4, 32, 64, DType::bf16}, {14, 2, 64, 64, DType::f16}, {60, 1, 16, 16, DType::bf16}};

TEST(AttentionReader, SeesWhatColumnSumsComputeAgain) {
  for (const Shape& shape : kShapes) {
    for (const int64_t n : {1, 17, 600, 1100}) {
      const Layer layer(shape, n, 3);
      for (const int64_t q_len : {int64_t{1}, std::min<int64_t>(n, 37), std::min<int64_t>(n, 700)}) {
        const std::vector<float> q = normal(q_len * shape.q_heads * shape.head_dim, 4);
        for (const int64_t window : {0, 70}) {
          for (const CpuPath path : available_cpu_paths()) {
            if (path == CpuPath::reference && n * q_len > 30000) continue;
            const ScopedCpuPath forced(path);
            const Read got = read(shape, q.data(), q_len, layer.runs(), window);
            const std::vector<float> want = column_sums_of(shape, q, q_len, got.memory.lse, layer.runs(), window);
            expect_close(got.sums.probabilities, want, 1e-6, 2e-5, name_of(path));
          }
        }
      }
    }
  }
}

TEST(AttentionReader, LeavesTheBitsOfAttentionAsTheyAre) {
  for (const Shape& shape : kShapes) {
    const Layer layer(shape, 1100, 5);
    const std::vector<float> q = normal(90 * shape.q_heads * shape.head_dim, 6);
    for (const CpuPath path : available_cpu_paths()) {
      const ScopedCpuPath forced(path);
      StateMemory plain(shape, 90);
      test::attend_one(shape, test::problem(shape, q.data(), 90, layer.runs(), true, plain));
      plain.finish();
      expect_same_bits(read(shape, q.data(), 90, layer.runs()).memory.out, plain.out, name_of(path));
    }
  }
}

TEST(AttentionReader, APromptInPiecesOnAnyThreadsGivesTheBitsOfOneCall) {
  const Shape shape{6, 2, 64, 64, DType::bf16};
  constexpr int64_t n = 1300, width = 384;
  const Layer layer(shape, n, 7);
  const std::vector<float> q = normal(n * width, 8);
  std::optional<Sums> first;
  for (const CpuPath path : test::simd_paths()) {
    const ScopedCpuPath forced(path);
    for (const int threads : {1, 2, 5}) {
      const ScopedThreads scope(threads);
      const Sums whole = read(shape, q.data(), n, layer.runs(), 0, 2).sums;
      if (!first) first = whole;
      Sums pieces(shape, n, 0, 2);
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 130}, {130, 777}, {777, n}}) {
        const std::vector<HeadRun> runs = layer.runs(end);
        StateMemory memory(shape, end - begin);
        Sums some(shape, n, begin, 2);
        std::swap(some.probabilities, pieces.probabilities);
        std::swap(some.means, pieces.means);
        std::swap(some.squares, pieces.squares);
        std::swap(some.perturbed, pieces.perturbed);
        AttendProblem problem = test::problem(shape, q.data() + begin * width, end - begin, runs, true, memory);
        problem.reader = &some;
        test::attend_one(shape, problem);
        pieces = some;
      }
      for (const Sums* sums : {&whole, &std::as_const(pieces)}) {
        const std::string what = fmt::format("{}, {} threads", name_of(path), threads);
        expect_same_bits(sums->probabilities, first->probabilities, what);
        expect_same_bits(sums->means, first->means, what);
        expect_same_bits(sums->squares, first->squares, what);
        expect_same_bits(sums->perturbed, first->perturbed, what);
      }
    }
  }
}

TEST(AttentionReader, EverySumAgreesWithItsReference) {
  for (const Shape& shape : kShapes) {
    const Layer layer(shape, 700, 9);
    const std::vector<float> q = normal(60 * shape.q_heads * shape.head_dim, 10);
    for (const float tau : {1.0F, 0.3F, 2.5F}) {
      std::optional<Sums> want;
      for (const CpuPath path : available_cpu_paths()) {  // the reference first
        const ScopedCpuPath forced(path);
        const Sums got = read(shape, q.data(), 60, layer.runs(), 0, tau).sums;
        if (!want) want = got;
        expect_close(got.means, want->means, 1e-6, 2e-5, name_of(path));
        expect_close(got.squares, want->squares, 1e-7, 5e-5, name_of(path));
        expect_close(got.perturbed, want->perturbed, 1e-6, 2e-4, name_of(path));
      }
    }
  }
}

TEST(AttentionReader, MomentsAndPerturbedSumsAreWhatTheyShouldBe) {
  const Shape shape{4, 2, 32, 32, DType::f32};
  const Layer layer(shape, 40, 11);
  const std::vector<float> q = normal(1 * 4 * 32, 12);
  const Sums sums = read(shape, q.data(), 1, layer.runs(), 0, 0.5).sums;
  for (size_t head = 0; head < 2; ++head) {
    std::array<double, 2> totals{};
    std::array<std::vector<double>, 2> weights;
    for (size_t g = 0; g < 2; ++g) {
      for (size_t p = 0; p < 40; ++p) {
        const float probability = sums.probabilities[(head * 2 + g) * 40 + p];
        const double gumbel = std::log(gumbel_factor(g << 32 | head, static_cast<int64_t>(p)));
        weights[g].push_back(std::exp((std::log(static_cast<double>(probability)) + gumbel) / 0.5));
        totals[g] += weights[g].back();
      }
    }
    for (size_t p = 0; p < 40; ++p) {
      const double mean = (sums.probabilities[head * 80 + p] + sums.probabilities[head * 80 + 40 + p]) / 2;
      EXPECT_NEAR(sums.means[head * 40 + p], mean, 1e-6);
      EXPECT_NEAR(sums.squares[head * 40 + p], mean * mean, 1e-6);
      EXPECT_NEAR(sums.perturbed[head * 40 + p], weights[0][p] / totals[0] + weights[1][p] / totals[1], 1e-5);
    }
  }
}

TEST(AttentionReader, ReadsListedAndPackedEntries) {
  const Shape shape{6, 2, 64, 64, DType::bf16};
  constexpr int64_t n = 900, packed = 512;
  Layer layer(shape, n, 13);
  const std::vector<float> q = normal(20 * 384, 14);
  std::vector<int32_t> index;
  for (int32_t e = 0; e < n; e += e % 64 < 40 ? 1 : 5) index.push_back(e);
  std::vector<HeadRun> indexed = layer.runs();
  for (HeadRun& run : indexed) {
    run.index = index.data();
    run.index_count = static_cast<int64_t>(index.size());
  }
  std::vector<test::PackedMemory> memory;
  std::vector<std::vector<float>> keys, values;
  std::vector<HeadRun> mixed;
  memory.reserve(4);
  for (int64_t h = 0; h < 2; ++h) {
    std::vector<float> rows = normal(packed * 64, 15);
    for (const CellKind kind : {CellKind::keys, CellKind::values}) {
      memory.emplace_back(kind, QuantFormat{.bits = 4}, 64, packed);
      encode_rows(memory.back().view, 0, packed, rows.data(), 64);
    }
    keys.push_back(layer.cells(CellKind::keys, h, packed, n));
    values.push_back(layer.cells(CellKind::values, h, packed, n));
    const PackedEntries* key_codes = &memory[memory.size() - 2].view;
    const PackedEntries* value_codes = &memory.back().view;
    mixed.push_back({keys.back().data(), values.back().data(), n, nullptr, 0, key_codes, packed, value_codes, packed});
  }
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    for (const std::vector<HeadRun>& runs : {indexed, mixed}) {
      const auto listed = static_cast<size_t>(runs[0].index != nullptr ? runs[0].index_count : n);
      const Read got = read(shape, q.data(), 20, runs);
      const std::vector<float> want = column_sums_of(shape, q, 20, got.memory.lse, runs, 0);
      for (size_t h = 0; h < 6; ++h) {
        for (size_t i = 0; i < listed; ++i) {
          ASSERT_NEAR(got.sums.probabilities[h * n + i], want[h * listed + i], 1e-5 + 2e-4 * want[h * listed + i])
              << name_of(path);
        }
      }
    }
  }
}

/// A reader of the last segment gets probabilities of the whole state.
TEST(AttentionReader, ProbabilitiesAreThoseOfTheWholeStateFoldedSoFar) {
  const Shape shape{4, 2, 64, 64, DType::f32};
  const Layer layer(shape, 1024 + 30, 17);
  const std::vector<float> q = normal(30 * 256, 18);
  std::vector<std::vector<float>> keys, values;
  std::vector<HeadRun> front, tail;
  for (int64_t h = 0; h < 2; ++h) {
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1024}, {1024, 1054}}) {
      keys.push_back(layer.cells(CellKind::keys, h, begin, end));
      values.push_back(layer.cells(CellKind::values, h, begin, end));
      (begin == 0 ? front : tail).push_back({keys.back().data(), values.back().data(), end - begin});
    }
  }
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    const Sums whole = read(shape, q.data(), 30, layer.runs()).sums;
    StateMemory memory(shape, 30);
    test::attend_one(shape, test::problem(shape, q.data(), 30, front, false, memory));
    Sums last(shape, 30, 0, 1);
    AttendProblem problem = test::problem(shape, q.data(), 30, tail, true, memory);
    problem.reader = &last;
    test::attend_one(shape, problem);
    for (size_t h = 0; h < 4; ++h) {
      for (size_t i = 0; i < 30; ++i) {
        const float want = whole.probabilities[h * 1054 + 1024 + i];
        ASSERT_NEAR(last.probabilities[h * 30 + i], want, 1e-7 + 1e-5 * want) << name_of(path);
      }
    }
  }
}

/// Probabilities of two tokens of two query heads over 40 entries, and behind them a token that belongs to nobody: its
/// row is as large as the others, so whoever adds it is found out.
struct ThreeTokens {
  static constexpr int64_t kEntries = 40;
  std::vector<int64_t> low = {0, 3, 5}, high = {38, 39, 40};
  std::vector<float> weights = std::vector<float>(3 * 2 * 48), factors = {1, 0.5F, 2, 0.25F, 1, 1};
  ThreeTokens() {
    for (int64_t row = 0; row < 6; ++row) {
      for (int64_t p = low[row / 2]; p < high[row / 2]; ++p)
        weights[row * 48 + p] = static_cast<float>(row * kEntries + p + 1) / 256;
    }
  }
  [[nodiscard]] ProbabilityRows rows() const {
    return {.group = 2,
            .tokens = 2,
            .low = low.data(),
            .high = high.data(),
            .weights = weights.data(),
            .weights_stride = 48,
            .factors = factors.data(),
            .factors_stride = 1};
  }
};

TEST(ProbabilityRows, SumsAreOverTheRowsTokensAlone) {
  const ThreeTokens three;
  const ProbabilityRows rows = three.rows();
  std::vector<double> means(ThreeTokens::kEntries), squares(means.size());
  for (int64_t t = 0; t < 2; ++t) {
    for (int64_t p = three.low[t]; p < three.high[t]; ++p) {
      const double mean = (rows.probability(2 * t, p) + static_cast<double>(rows.probability(2 * t + 1, p))) / 2;
      means[p] += mean;
      squares[p] += mean * mean;
    }
  }
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    std::vector<float> found(means.size()), of_squares(means.size()), by_head(2 * means.size());
    add_moments(rows, found.data(), of_squares.data());
    add_probabilities(rows, by_head.data(), ThreeTokens::kEntries);
    for (size_t p = 0; p < means.size(); ++p) {
      EXPECT_NEAR(found[p], means[p], 1e-5) << name_of(path) << " " << p;
      EXPECT_NEAR(of_squares[p], squares[p], 1e-5) << name_of(path) << " " << p;
      EXPECT_NEAR((by_head[p] + by_head[means.size() + p]) / 2, means[p], 1e-5) << name_of(path) << " " << p;
    }
  }
}

/// The first numbers that the authors' splitmix64.c gives from the seed 1234567.
TEST(GumbelNoise, IsPlacedBySplitMix64) {
  EXPECT_EQ(mixed(1234567, 0), 6457827717110365317U);
  EXPECT_EQ(mixed(1234567, 1), 3203168211198807973U);
  EXPECT_EQ(mixed(1234567, 2), 9817491932198370423U);
}

/// 1 / e^G is exponential with mean 1.
TEST(GumbelNoise, IsGumbelAndIndependentOfItsNeighbours) {
  constexpr int kDraws = 200000;
  std::vector<double> draws;
  for (int64_t i = 0; i < kDraws; ++i) {  // rows of a prompt's queries
    draws.push_back(1 / gumbel_factor(static_cast<uint64_t>(i / 1000) * 0xd1342543de82ef95u, i % 1000));
  }
  double mean = 0, square = 0, next = 0, below = 0;
  for (size_t i = 0; i < draws.size(); ++i) {
    mean += draws[i] / kDraws;
    square += draws[i] * draws[i] / kDraws;
    if (i > 0) next += (draws[i] - 1) * (draws[i - 1] - 1) / kDraws;
    if (i >= 1000) below += (draws[i] - 1) * (draws[i - 1000] - 1) / kDraws;  // the same entry, one query before
  }
  // Five standard errors: sd of x is 1, of x^2 sqrt(20), of products of independent ones 1.
  EXPECT_NEAR(mean, 1, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(square, 2, 5 * std::sqrt(20 / static_cast<double>(kDraws)));
  EXPECT_NEAR(next, 0, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(below, 0, 5 / std::sqrt(kDraws));
  std::sort(draws.begin(), draws.end());
  double largest = 0;  // Kolmogorov-Smirnov
  for (size_t i = 0; i < draws.size(); ++i) {
    largest = std::max(largest, std::fabs(1 - std::exp(-draws[i]) - static_cast<double>(i) / kDraws));
  }
  EXPECT_LT(largest, 1.95 / std::sqrt(kDraws));  // p = 0.001
}

/// Draws from the table behave as independent ones: queries see one entry's draws as if these were drawn anew, and two
/// entries' draws differ in sum over many queries as independent ones do.
TEST(GumbelNoise, ColumnsOfManyQueriesAreIndependent) {
  constexpr int64_t kQueries = 4000, kEntries = 600;
  std::vector<double> sums(kEntries);
  for (uint64_t query = 0; query < kQueries; ++query) {
    for (int64_t p = 0; p < kEntries; ++p) sums[static_cast<size_t>(p)] += 1 / gumbel_factor(query << 20, p) - 1;
  }
  double variance = 0, neighbours = 0;
  for (size_t p = 0; p < sums.size(); ++p) {
    variance += sums[p] * sums[p] / kQueries / kEntries;
    if (p > 0) neighbours += sums[p] * sums[p - 1] / kQueries / kEntries;
  }
  // Sums of 4000 have variance 4000; five standard errors of 600 squares and of 600 products.
  EXPECT_NEAR(variance, 1, 5 * std::sqrt(2.0 / kEntries));
  EXPECT_NEAR(neighbours, 0, 5 / std::sqrt(static_cast<double>(kEntries)));
}

}  // namespace
}  // namespace kvarena::kernels
