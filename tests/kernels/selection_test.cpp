// Page bounds, scores of cells, top-k, the Hadamard transform and rows of entries.
#include "kernels/cell_scores/cell_scores.h"
#include "kernels/entry_rows/small_product.h"
#include "kernels/hadamard/hadamard.h"
#include "kernels/page_bounds/page_bounds.h"
#include "kernels/top_k/top_k.h"
#include "tests/kernels/attention_support.h"

namespace kvarena::kernels {
namespace {

using test::expect_close;
using test::expect_same_bits;
using test::normal;

TEST(PageBounds, TwoPagesByHand) {
  // q = (1, -1); page {(1,2), (3,-1)}: max(1,3) + max(-2,1) = 4; page {(0,4), (-2,5)}: 0 - 4 = -4.
  std::vector<float> memory(2 * 16 * 16);
  const Cells keys{CellKind::keys, DType::f32, 16, memory.data()};
  std::vector<float> rows(18 * 16);
  const auto put = [&](size_t entry, float a, float b) {
    rows[entry * 16] = a;
    rows[entry * 16 + 1] = b;
  };
  for (size_t e = 0; e < 16; ++e) put(e, e % 2 == 0 ? 1 : 3, e % 2 == 0 ? 2 : -1);
  put(16, 0, 4);
  put(17, -2, 5);
  store_rows(keys, 0, 18, rows.data(), 16);
  std::vector<float> q(16), low(32), high(32), scores(2);
  q[0] = 1;
  q[1] = -1;
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    update_page_bounds(keys, 0, 18, {low.data(), high.data()});
    page_scores(q.data(), 1, 16, {low.data(), high.data()}, 2, 16, scores.data(), 2);
    EXPECT_EQ(scores, (std::vector<float>{4, -4})) << name_of(path);
  }
}

TEST(PageBounds, AppendingStepByStepEqualsAtOnceAndBoundsEveryKey) {
  const test::Shape shape{1, 1, 80, 80, DType::bf16};
  constexpr int64_t n = 100, pages = 7;
  const test::Layer layer(shape, n, 3);
  std::vector<float> memory = layer.cells(CellKind::keys, 0, 0, n);
  const Cells keys{CellKind::keys, DType::bf16, 80, memory.data()};
  const std::vector<float> q = normal(4 * 80, 4);
  std::vector<float> rows(n * 80);
  load_rows(keys, 0, n, rows.data(), 80);
  std::vector<float> reference_low;
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    std::vector<float> low(pages * 80), high(pages * 80), step_low(pages * 80), step_high(pages * 80), scores(4 * 9);
    update_page_bounds(keys, 0, n, {low.data(), high.data()});
    for (const auto& [first, end] : {std::pair<int64_t, int64_t>{0, 5}, {5, 31}, {31, 32}, {32, n}}) {
      update_page_bounds(keys, first, end, {step_low.data(), step_high.data()});
    }
    expect_same_bits(step_low, low, name_of(path));
    expect_same_bits(step_high, high, name_of(path));
    if (reference_low.empty()) reference_low = low;
    expect_same_bits(low, reference_low, name_of(path));
    page_scores(q.data(), 4, 80, {low.data(), high.data()}, pages, 80, scores.data(), 9);
    for (int64_t r = 0; r < 4; ++r) {
      for (int64_t e = 0; e < n; ++e) {
        double dot = 0;
        for (int64_t c = 0; c < 80; ++c)
          dot += q[static_cast<size_t>(r * 80 + c)] * static_cast<double>(rows[static_cast<size_t>(e * 80 + c)]);
        ASSERT_GE(scores[static_cast<size_t>(r * 9 + e / 16)] + 1e-4, dot) << name_of(path) << " entry " << e;
      }
    }
  }
}

TEST(CellScores, EveryPathEqualsPlainSumsAndWritesNoEntryTooMany) {
  for (const DType dtype : test::kDTypes) {
    for (const int64_t channels : {1, 5, 32, 80}) {
      for (const int64_t n : {1, 15, 16, 17, 100}) {
        for (const int64_t rows : {1, 2, 3, 4, 7}) {
          std::vector<float> memory(static_cast<size_t>(cells_for(n) * 16 * channels * size_of(dtype) / 4));
          const std::vector<float> numbers = normal(n * channels, 5);
          for (int64_t e = 0; e < n; ++e) {
            for (int64_t c = 0; c < channels; ++c) {
              store_element(memory.data(), dtype, cell_offset(CellKind::keys, channels, e, c),
                            numbers[static_cast<size_t>(e * channels + c)]);
            }
          }
          const std::vector<float> q = normal(rows * (channels + 3), 6);
          std::vector<float> first;
          for (const CpuPath path : available_cpu_paths()) {
            const ScopedCpuPath forced(path);
            std::vector<float> scores(static_cast<size_t>(rows * (n + 2)), -7.0F);
            cell_scores(q.data(), rows, channels + 3, {CellKind::keys, dtype, channels, memory.data()}, n,
                        scores.data(), n + 2);
            for (int64_t r = 0; r < rows; ++r) {
              for (int64_t e = n; e < n + 2; ++e) ASSERT_EQ(scores[static_cast<size_t>(r * (n + 2) + e)], -7.0F);
            }
            if (first.empty()) first = scores;  // the reference path, plain sums in double
            expect_close(scores, first, 1e-4, 1e-5, name_of(path));
          }
        }
      }
    }
  }
}

TEST(TopK, LargerFirstThenLowerIndexInAscendingOrder) {
  const std::vector<float> scores{1, 5, 3, 5, -2, 5, 0};
  std::vector<int32_t> index(7, -1);
  EXPECT_EQ(top_k(scores.data(), 7, 2, index.data()), 2);
  EXPECT_EQ(std::vector<int32_t>(index.begin(), index.begin() + 2), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(top_k(scores.data(), 7, 4, index.data()), 4);
  EXPECT_EQ(std::vector<int32_t>(index.begin(), index.begin() + 4), (std::vector<int32_t>{1, 2, 3, 5}));
  EXPECT_EQ(top_k(scores.data(), 7, 9, index.data()), 7);
  EXPECT_EQ(top_k(scores.data(), 7, 0, index.data()), 0);
  EXPECT_EQ(top_k(scores.data(), 0, 3, index.data()), 0);
}

TEST(TopK, ZerosOfBothSignsAndInfinitiesHaveTheirPlace) {
  const std::vector<float> scores{-0.0f, 0.0f, -INFINITY, INFINITY, -0.0f};
  std::vector<int32_t> index(3);
  EXPECT_EQ(top_k(scores.data(), 5, 3, index.data()), 3);
  EXPECT_EQ(index, (std::vector<int32_t>{0, 1, 3}));
}

TEST(TopK, NaNIsReportedWithItsRow) {
  std::vector<float> scores = normal(3 * 100, 5);
  std::vector<int32_t> index(30);
  EXPECT_EQ(top_k_rows(scores.data(), 3, 100, 100, 10, index.data()), -1);
  scores[150] = std::nanf("");
  EXPECT_EQ(top_k_rows(scores.data(), 3, 100, 100, 10, index.data()), 1);
  EXPECT_EQ(top_k(scores.data() + 100, 100, 100, index.data()), -1);
}

TEST(TopK, AgreesWithAStableSort) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<float> scores = normal(300, seed);
    for (float& s : scores) s = std::round(s * 4);  // many ties
    std::vector<int32_t> order(300), index(300);
    for (int32_t i = 0; i < 300; ++i) order[static_cast<size_t>(i)] = i;
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    const auto k = static_cast<int64_t>(seed * 6 + 1);
    ASSERT_EQ(top_k(scores.data(), 300, k, index.data()), k);
    std::sort(order.begin(), order.begin() + k);
    EXPECT_TRUE(std::equal(order.begin(), order.begin() + k, index.begin())) << "seed " << seed;
  }
}

TEST(Hadamard, AUnitVectorSpreadsEvenly) {
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    std::vector<float> x{1, 0, 0, 0}, y{0, 0, 0, 1};
    hadamard(x.data(), 1, 4, 4);
    hadamard(y.data(), 1, 4, 4);
    EXPECT_EQ(x, (std::vector<float>{0.5f, 0.5f, 0.5f, 0.5f}));
    EXPECT_EQ(y, (std::vector<float>{0.5f, -0.5f, -0.5f, 0.5f}));
  }
}

TEST(Hadamard, TwiceIsTheIdentityAndPathsAgree) {
  for (const int64_t n : {1, 2, 16, 64, 128, 512}) {
    const std::vector<float> x = normal(200 * (n + 1), 6);
    std::vector<float> want = x, first;
    {
      const ScopedCpuPath reference(CpuPath::reference);
      hadamard(want.data(), 200, n, n + 1);
    }
    for (const CpuPath path : test::simd_paths()) {
      const ScopedCpuPath forced(path);
      std::vector<float> y = x;
      hadamard(y.data(), 200, n, n + 1);
      expect_close(y, want, 3e-6, 1e-6, name_of(path));
      if (first.empty()) first = y;
      expect_same_bits(y, first, name_of(path));
      hadamard(y.data(), 200, n, n + 1);
      expect_close(y, x, 3e-6, 1e-6, name_of(path));
    }
  }
  std::vector<float> x(6);
  EXPECT_THROW(hadamard(x.data(), 1, 6, 6), std::logic_error);
}

TEST(Hadamard, LanesHaveTheBitsOfRows) {
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    for (const int64_t n : {1, 2, 16, 64, 128}) {
      const int64_t stride = 16 * n + 5;
      const std::vector<float> rows = normal(2 * 16 * n, 6);
      std::vector<float> want = rows, lanes(static_cast<size_t>(2 * stride));
      hadamard(want.data(), 32, n, n);
      const auto each = [&](const auto& visit) {
        for (int64_t row = 0; row < 32; ++row) {
          for (int64_t c = 0; c < n; ++c) visit(row * n + c, lanes[row / 16 * stride + c * 16 + row % 16]);
        }
      };
      each([&](int64_t i, float& x) { x = rows[i]; });
      hadamard_lanes(lanes.data(), 2, n, stride);
      each([&](int64_t i, const float& x) { ASSERT_EQ(x, want[i]) << name_of(path) << " n " << n; });
    }
  }
}

TEST(EntryRows, SmallProductsAreAdded) {
  constexpr int64_t kRows = 21, kRank = 5;
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    for (const int64_t columns : {3, 16, 24, 80, 83}) {
      const int64_t stride = columns + 2;
      const std::vector<float> y = normal(kRows * stride, 1), a = normal(kRows * kRank, 2),
                               b = normal(kRank * columns, 3);
      for (const bool turned : {false, true}) {  // a as [rank, rows]
        const int64_t a_row = turned ? 1 : kRank, a_step = turned ? kRows : 1;
        std::vector<float> got = y;
        add_product({.y = got.data(),
                     .y_stride = stride,
                     .a = a.data(),
                     .a_row_stride = a_row,
                     .a_stride = a_step,
                     .b = b.data(),
                     .rows = kRows,
                     .columns = columns,
                     .rank = kRank});
        for (int64_t r = 0; r < kRows; ++r) {
          for (int64_t c = 0; c < stride; ++c) {
            double want = y[r * stride + c];
            for (int64_t k = 0; k < kRank && c < columns; ++k)
              want += double{a[r * a_row + k * a_step]} * b[k * columns + c];
            ASSERT_NEAR(got[r * stride + c], want, 4e-6) << name_of(path) << " row " << r << " column " << c;
          }
        }
      }
    }
  }
}

TEST(CellScores, AreDotProductsHoweverManyEntriesThereAre) {
  for (const int64_t n : {3, 20, 17000}) {  // the last on threads
    std::vector<float> memory(static_cast<size_t>(cells_for(n) * 16 * 2));
    const std::vector<float> keys = normal(n * 2, 7), q = normal(4 * 2, 8);
    for (int64_t i = 0; i < n * 2; ++i) {
      store_element(memory.data(), DType::f32, cell_offset(CellKind::keys, 2, i / 2, i % 2),
                    keys[static_cast<size_t>(i)]);
    }
    std::vector<float> want;
    for (size_t r = 0; r < 4; ++r) {
      for (size_t e = 0; e < static_cast<size_t>(n); ++e)
        want.push_back(q[2 * r] * keys[2 * e] + q[2 * r + 1] * keys[2 * e + 1]);
    }
    for (const CpuPath path : available_cpu_paths()) {
      const ScopedCpuPath forced(path);
      std::vector<float> scores(want.size());
      cell_scores(q.data(), 4, 2, {CellKind::keys, DType::f32, 2, memory.data()}, n, scores.data(), n);
      expect_close(scores, want, 1e-5, 1e-5, name_of(path));
    }
  }
}

TEST(Hadamard, EveryRowIsTransformedHoweverManyThereAre) {
  for (const int64_t rows : {1, 33, 200}) {  // the last on threads
    for (const CpuPath path : available_cpu_paths()) {
      const ScopedCpuPath forced(path);
      std::vector<float> x = normal(rows * 20, 9), want = x;
      for (int64_t r = 0; r < rows; ++r) hadamard(want.data() + r * 20, 1, 16, 20);
      hadamard(x.data(), rows, 16, 20);
      expect_same_bits(x, want, name_of(path));
    }
  }
}

}  // namespace
}  // namespace kvarena::kernels
