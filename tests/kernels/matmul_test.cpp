#include "kernels/matmul/matmul.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/gated_matmul.h"
#include "kernels/matmul/row_reductions.h"
#include "tests/kernels/support.h"

namespace kvarena::kernels {
namespace {

using test::expect_close;
using test::expect_same_bits;
using test::Kind;
using test::normal;

struct Case {
  int64_t m, n, k;
  int64_t x_pad = 0, y_pad = 0;
  bool bias = false;
};

std::vector<float> run(const PackedMatrix& w, const std::vector<float>& x, int64_t m, int64_t x_stride,
                       int64_t y_stride, const float* bias) {
  std::vector<float> y(static_cast<size_t>(m * y_stride), -77.0f);
  matmul({x.data(), m, x_stride, &w, bias, y.data(), y_stride});
  return y;
}

PackedMatrix packed_as(const Kind& kind, const std::vector<float>& w, int64_t n, int64_t k) {
  return pack_weights(w.data(), n, k, kind.dtype, kind.arithmetic);
}

std::string describe(const Kind& kind, CpuPath path) { return std::string(name_of(path)) + " " + test::describe(kind); }

std::string describe(const Case& c, const Kind& kind, CpuPath path) {
  return describe(kind, path) + " m=" + std::to_string(c.m) + " n=" + std::to_string(c.n) + " k=" + std::to_string(c.k);
}

TEST(Matmul, EveryPathAgreesWithTheReference) {
  const Case cases[] = {{1, 1, 1},
                        {1, 32, 16},
                        {1, 33, 17, 3, 5, true},
                        {2, 100, 64},
                        {3, 576, 576},
                        {5, 31, 7, 1},
                        {7, 192, 600, 0, 2},
                        {12, 129, 33},
                        {13, 65, 300},
                        {64, 96, 257, 0, 0, true},
                        {48, 70, 96},
                        {49, 70, 96},
                        {200, 70, 513},
                        {200, 81, 513, 1, 3, true},
                        {385, 33, 40, 0, 1, true},
                        {4, 0, 8},
                        {0, 8, 8},
                        {3, 5, 0, 0, 0, true}};
  for (const Case& c : cases) {
    const std::vector<float> w = normal(c.n * c.k, 1), x = normal(c.m * (c.k + c.x_pad), 2), bias = normal(c.n, 3);
    for (const Kind& kind : test::kKinds) {
      const PackedMatrix packed = packed_as(kind, w, c.n, c.k);
      const float* b = c.bias ? bias.data() : nullptr;
      std::vector<float> want;
      {
        const ScopedCpuPath reference(CpuPath::reference);
        want = run(packed, x, c.m, c.k + c.x_pad, c.n + c.y_pad, b);
      }
      for (const CpuPath path : test::simd_paths()) {
        const ScopedCpuPath forced(path);
        // k products of unit size: error grows as sqrt(k) roundings of a sum of size sqrt(k)
        const double tolerance = 1e-6 * static_cast<double>(c.k + 1);
        expect_close(run(packed, x, c.m, c.k + c.x_pad, c.n + c.y_pad, b), want, tolerance, 1e-6,
                     describe(c, kind, path));
      }
    }
  }
}

TEST(RowReductions, AreThoseOfTheProduct) {
  const Case cases[] = {{1, 1, 1},     {1, 33, 17, 3}, {5, 31, 7, 1}, {13, 576, 64},
                        {25, 65, 300}, {4, 0, 8},      {0, 8, 8},     {3, 5, 0}};
  for (const Case& c : cases) {
    const std::vector<float> w = normal(c.n * c.k, 4), x = normal(c.m * (c.k + c.x_pad), 5);
    for (const Kind& kind : test::kKinds) {
      const PackedMatrix packed = packed_as(kind, w, c.n, c.k);
      for (const CpuPath path : available_cpu_paths()) {
        const ScopedCpuPath forced(path);
        const std::vector<float> y = run(packed, x, c.m, c.k + c.x_pad, c.n, nullptr);
        std::vector<float> want(static_cast<size_t>(c.m)), got(want.size(), -1.0F), alone(want.size());
        for (size_t i = 0; i < y.size(); ++i) want[i / static_cast<size_t>(c.n)] += std::fabs(y[i]);
        const Rows rows{x.data(), c.m, c.k + c.x_pad};
        row_magnitudes(rows, packed, got.data());
        expect_close(got, want, 1e-6, 1e-6 * static_cast<double>(c.n + 10), describe(c, kind, path));
        for (int64_t i = 0; i < c.m; ++i) {
          row_magnitudes({rows.x + i * rows.stride, 1, rows.stride}, packed, &alone[static_cast<size_t>(i)]);
        }
        expect_same_bits(got, alone, describe(c, kind, path));
        if (c.n == 0) continue;
        std::vector<int32_t> column(want.size(), -1);
        row_peaks(rows, packed, got.data(), column.data());
        for (int64_t i = 0; i < c.m; ++i) {
          const auto peak = std::max_element(y.begin() + i * c.n, y.begin() + (i + 1) * c.n);
          // matmul() of few rows and of many has the same bits, so there is nothing to tolerate.
          EXPECT_EQ(got[static_cast<size_t>(i)], *peak) << describe(c, kind, path);
          EXPECT_EQ(column[static_cast<size_t>(i)], peak - (y.begin() + i * c.n)) << describe(c, kind, path);
        }
      }
    }
  }
}

TEST(Matmul, TheReferenceIsTheDefinition) {
  const float w[] = {1, 2, 3, 4, 5, 6};  // [2, 3]
  const float x[] = {1, 10, 100};
  const float bias[] = {0.5f, -0.5f};
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    const PackedMatrix packed = pack_weights(w, 2, 3, DType::bf16);
    float y[2];
    matmul({x, 1, 3, &packed, bias, y, 2});
    EXPECT_EQ(y[0], 321.5f);
    EXPECT_EQ(y[1], 653.5f);
  }
}

TEST(Matmul, ARowHasTheSameBitsAloneAndInEveryBatch) {
  constexpr int64_t n = 150, k = 530, most = 67;
  const std::vector<float> w = normal(n * k, 11), x = normal(most * k, 12);
  for (const CpuPath path : test::simd_paths()) {
    const ScopedCpuPath forced(path);
    for (const Kind& kind : test::kKinds) {
      const PackedMatrix packed = packed_as(kind, w, n, k);
      std::vector<float> alone;
      for (int64_t i = 0; i < most; ++i) {
        const std::vector<float> row(x.begin() + i * k, x.begin() + (i + 1) * k);
        const std::vector<float> y = run(packed, row, 1, k, n, nullptr);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (int64_t m = 1; m <= most; ++m) {
        for (const int threads : {1, 2}) {
          const ScopedThreads scope(threads);
          const std::vector<float> y = run(packed, x, m, k, n, nullptr);
          expect_same_bits(y, {alone.begin(), alone.begin() + m * n},
                           describe(kind, path) + " m=" + std::to_string(m) + " threads=" + std::to_string(threads));
        }
      }
    }
  }
}

TEST(Matmul, Avx2AndAvx512GiveEqualBits) {
  if (test::simd_paths().size() < 2) GTEST_SKIP() << "this CPU has fewer than two SIMD paths";
  constexpr int64_t n = 95, k = 333;
  const std::vector<float> w = normal(n * k, 21), x = normal(40 * k, 22), bias = normal(n, 23);
  const PackedMatrix packed = pack_weights(w.data(), n, k, DType::bf16);
  for (const int64_t m : {1, 2, 5, 12, 40}) {
    const auto with = [&](CpuPath path) {
      const ScopedCpuPath forced(path);
      return run(packed, x, m, k, n, bias.data());
    };
    expect_same_bits(with(CpuPath::avx2), with(CpuPath::avx512), "m=" + std::to_string(m));
  }
}

/// y of the definition in matmul.h, with numbers in the range of normal ones.
float rounded_product(const float* x, const float* w, int64_t k) {
  const auto product = [&](int64_t c, float sum) {
    return c < k ? std::fma(bf16_to_f32(f32_to_bf16(x[c])), bf16_to_f32(f32_to_bf16(w[c])), sum) : sum;
  };
  float sum = 0;
  for (int64_t c = 0; c < k; c += 2) sum = product(c, product(c + 1, sum));
  return sum;
}

TEST(Matmul, RoundedProductsHaveTheBitsOfTheirDefinitionOnEveryPath) {
  constexpr int64_t n = 70, most = 61;
  for (const int64_t k : {1, 2, 31, 333, 1030}) {
    const std::vector<float> w = normal(n * k, 24), x = normal(most * k, 25);
    const PackedMatrix packed = packed_as({DType::bf16, Arithmetic::bf16}, w, n, k);
    std::vector<float> want;
    for (int64_t i = 0; i < most; ++i) {
      for (int64_t j = 0; j < n; ++j) want.push_back(rounded_product(x.data() + i * k, w.data() + j * k, k));
    }
    for (const CpuPath path : test::simd_paths()) {
      const ScopedCpuPath forced(path);
      for (const int64_t m : {1, 3, 7, 12, 48, 61}) {
        expect_same_bits(run(packed, x, m, k, n, nullptr), {want.begin(), want.begin() + m * n},
                         std::string(name_of(path)) + " m=" + std::to_string(m) + " k=" + std::to_string(k));
      }
    }
  }
}

TEST(Matmul, RoundedProductsTakeDenormalsForZeroOnEveryPath) {
  // Operands that are denormal, a sum that becomes it, and an infinity; the bias joins afterwards.
  const std::vector<float> w = {1e-39F, 1, 1e-20F, 1e-20F, 1, 1, 1, 1}, x = {0x1p100F, 1e-39F, 1e-19F, -1e-19F};
  const float bias[] = {0.25F, 0.25F};
  const PackedMatrix packed = packed_as({DType::bf16, Arithmetic::bf16}, w, 2, 4);
  for (const CpuPath path : test::simd_paths()) {
    const ScopedCpuPath forced(path);
    EXPECT_EQ(run(packed, x, 1, 4, 2, bias), (std::vector<float>{0.25F, 0x1p100F})) << name_of(path);
    EXPECT_EQ(run(packed, {1, INFINITY, 0, 0}, 1, 4, 2, nullptr)[1], INFINITY) << name_of(path);
    volatile float least = 1e-38F;
    EXPECT_NE(least / 16, 0) << "denormal numbers are numbers again";
  }
}

TEST(Matmul, RoundedProductsNeedWeightsInBf16) {
  EXPECT_THROW(PackedMatrix(4, 4, DType::f32, Arithmetic::bf16), std::logic_error);
}

TEST(GatedMatmul, HasTheBitsOfTheProductAndTheGateOnEveryPath) {
  constexpr int64_t kInner = 96, kDepth = 257, kRows = 401, kStride = kInner + 3;
  const std::vector<float> w = normal(2 * kInner * kDepth, 1), x = normal(kRows * kDepth, 2);
  for (const Kind& kind : test::kKinds) {
    const PackedMatrix packed = packed_as(kind, w, 2 * kInner, kDepth);
    for (const CpuPath path : test::simd_paths()) {
      const ScopedCpuPath forced(path);
      const std::vector<float> both = run(packed, x, kRows, kDepth, 2 * kInner, nullptr);
      for (const Gate gate : {Gate::silu, Gate::gelu}) {
        std::vector<float> want(kRows * kStride, -77.0f), got = want;
        (gate == Gate::silu ? silu_mul : gelu_mul)({.gate = both.data(),
                                                    .up = both.data() + kInner,
                                                    .out = want.data(),
                                                    .rows = kRows,
                                                    .n = kInner,
                                                    .gate_stride = 2 * kInner,
                                                    .up_stride = 2 * kInner,
                                                    .out_stride = kStride});
        ASSERT_TRUE(gated_matmul({x.data(), kRows, kDepth, &packed, nullptr, got.data(), kStride}, gate));
        expect_same_bits(got, want, describe(kind, path));
      }
    }
  }
}

TEST(GatedMatmul, LeavesFewRowsAndPartsOfPanelsToOthers) {
  const std::vector<float> x = normal(100 * 8, 2);
  std::vector<float> y(100 * 64, -77.0f);
  const auto computed = [&](int64_t rows, int64_t n) {
    const PackedMatrix packed = pack_weights(normal(n * 8, 1).data(), n, 8, DType::f32);
    return gated_matmul({x.data(), rows, 8, &packed, nullptr, y.data(), n / 2}, Gate::silu);
  };
  EXPECT_FALSE(computed(2, 64));
  EXPECT_FALSE(computed(100, 96));
  EXPECT_FALSE(computed(100, 33));
  EXPECT_EQ(std::ranges::count(y, -77.0f), std::ssize(y));
}

TEST(PackedMatrix, RowRangesInAnyOrderEqualPackingAtOnce) {
  constexpr int64_t n = 77, k = 130;
  const std::vector<float> w = normal(n * k, 31);
  for (const DType dtype : test::kDTypes) {
    const PackedMatrix whole = pack_weights(w.data(), n, k, dtype);
    PackedMatrix pieces(n, k, dtype);
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{40, 77}, {0, 1}, {1, 40}}) {
      pieces.pack_rows(begin, end - begin, w.data() + begin * k, k);
    }
    ASSERT_EQ(whole.bytes(), pieces.bytes());
    EXPECT_EQ(std::memcmp(whole.data(), pieces.data(), static_cast<size_t>(whole.bytes())), 0);
    std::vector<float> row(k);
    whole.unpack_row(50, row.data());
    for (int64_t c = 0; c < k; ++c) {
      float stored = 0;
      store_element(&stored, dtype, 0, w[static_cast<size_t>(50 * k + c)]);
      EXPECT_EQ(row[static_cast<size_t>(c)], load_element(&stored, dtype, 0));
    }
  }
}

TEST(PackedMatrix, RowsOutsideTheMatrixAreRefused) {
  PackedMatrix w(4, 4, DType::f32);
  const std::vector<float> rows(16);
  EXPECT_THROW(w.pack_rows(2, 3, rows.data(), 4), std::logic_error);
  EXPECT_THROW(w.pack_block(0, 0, {}), std::logic_error);
  PackedMatrix blocks(4, 64, WeightForm::q8_0);
  EXPECT_THROW(blocks.pack_block(4, 0, {}), std::logic_error);
  EXPECT_THROW(blocks.pack_block(0, 2, {}), std::logic_error);
  EXPECT_THROW(blocks.pack_rows(0, 1, rows.data(), 64), std::logic_error);
  EXPECT_THROW(PackedMatrix(4, 48, WeightForm::q8_0), std::logic_error);
}

TEST(RowReductions, AProductBelowZeroIsLargerThanNoColumn) {
  const std::vector<float> w(5 * 3, 1.0F), x(4 * 3, -2.0F);
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    const PackedMatrix packed = pack_weights(w.data(), 5, 3, DType::f32);
    std::vector<float> largest(4);
    std::vector<int32_t> column(4, -1);
    row_peaks({x.data(), 4, 3}, packed, largest.data(), column.data());
    EXPECT_EQ(largest, std::vector<float>(4, -6.0F)) << name_of(path);
    EXPECT_EQ(column, std::vector<int32_t>(4, 0)) << name_of(path);
  }
}

}  // namespace
}  // namespace kvarena::kernels
