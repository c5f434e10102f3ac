#include "kernels/elementwise/elementwise.h"

#include "tests/kernels/support.h"

namespace kvarena::kernels {
namespace {

using test::expect_close;
using test::expect_same_bits;
using test::normal;

/// All operations on rows of n; strides larger than n leave the gap alone.
std::vector<std::vector<float>> run_all(int64_t rows, int64_t n, int64_t stride, const std::vector<float>& x,
                                        const std::vector<float>& z, const std::vector<float>& weight) {
  std::vector<float> norm(x.size(), 9.0f), silu(x.size(), 9.0f), gelu(x.size(), 9.0f), sigmoid(x.size(), 9.0f), sum = x;
  rms_norm({x.data(), weight.data(), norm.data(), rows, n, stride, stride, 1e-5f});
  silu_mul({x.data(), z.data(), silu.data(), rows, n, stride, stride, stride});
  gelu_mul({x.data(), z.data(), gelu.data(), rows, n, stride, stride, stride});
  sigmoid_mul({x.data(), z.data(), sigmoid.data(), rows, n, stride, stride, stride});
  add_into(sum.data(), z.data(), static_cast<int64_t>(x.size()));
  std::vector<float> soft = x, soft_sunk = x, sinks;
  for (int64_t r = 0; r < rows; ++r) sinks.push_back(z[r * stride]);
  softmax(soft.data(), rows, n, stride, 0.7f);
  softmax(soft_sunk.data(), rows, n, stride, 0.7f, sinks.data());
  return {norm, silu, gelu, sigmoid, sum, soft, soft_sunk};
}

TEST(Elementwise, EveryPathAgreesWithTheReference) {
  for (const int64_t n : {1, 15, 16, 17, 576, 1001}) {
    for (const int64_t rows : {0, 1, 5, 90}) {
      const int64_t stride = n + 3;
      const std::vector<float> x = normal(rows * stride, 1, 4.0f), z = normal(rows * stride, 2), w = normal(n, 3);
      std::vector<std::vector<float>> want;
      {
        const ScopedCpuPath reference(CpuPath::reference);
        want = run_all(rows, n, stride, x, z, w);
      }
      for (const CpuPath path : test::simd_paths()) {
        const ScopedCpuPath forced(path);
        const std::vector<std::vector<float>> got = run_all(rows, n, stride, x, z, w);
        for (size_t i = 0; i < got.size(); ++i) {
          expect_close(got[i], want[i], 1e-7, 2e-6, std::string(name_of(path)) + " operation " + std::to_string(i));
        }
      }
    }
  }
}

TEST(Elementwise, ARowHasTheSameBitsAloneInABatchAndOnEveryPath) {
  constexpr int64_t rows = 80, n = 577;
  const std::vector<float> x = normal(rows * n, 4), z = normal(rows * n, 5), w = normal(n, 6);
  std::vector<std::vector<float>> first;
  for (const CpuPath path : test::simd_paths()) {
    const ScopedCpuPath forced(path);
    for (const int threads : {1, 2}) {
      const ScopedThreads scope(threads);
      const auto all = run_all(rows, n, n, x, z, w);
      if (first.empty()) first = all;
      for (size_t i = 0; i < all.size(); ++i) expect_same_bits(all[i], first[i], name_of(path));
    }
    const auto slice = [](const std::vector<float>& v) {
      return std::vector<float>(v.begin() + 41 * n, v.begin() + 42 * n);
    };
    const auto alone = run_all(1, n, n, slice(x), slice(z), w);
    for (size_t i = 0; i < alone.size(); ++i) expect_same_bits(alone[i], slice(first[i]), "row 41 alone");
  }
}

TEST(Elementwise, SiluGoesToZeroAndToItsArgument) {
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    const std::vector<float> gate{-200.0f, -20.0f, 0.0f, 20.0f, 200.0f}, up(5, 1.0f);
    std::vector<float> out(5);
    silu_mul({gate.data(), up.data(), out.data(), 1, 5, 5, 5, 5});
    EXPECT_NEAR(out[0], 0.0f, 1e-30);
    EXPECT_NEAR(out[1], -20 / (1 + std::exp(20.0)), 1e-13);
    EXPECT_EQ(out[2], 0.0f);
    EXPECT_NEAR(out[3], 20.0f, 1e-5);
    EXPECT_EQ(out[4], 200.0f);
  }
}

/// By torch.nn.functional.gelu(x, approximate="tanh") in float64.
TEST(Elementwise, GeluHasTheValuesOfItsFormByTanh) {
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    const std::vector<float> gate{-200.0f, -3.0f, -0.75f, 0.0f, 0.5f, 2.0f, 200.0f, 1e15f}, up(8, 1.0f);
    std::vector<float> out(8);
    gelu_mul({gate.data(), up.data(), out.data(), 1, 8, 8, 8, 8});
    const std::vector<double> want{
        0, -0.0036373920817729943, -0.17003944483437966, 0.0, 0.34571400982514394, 1.954597694087775, 200.0};
    for (size_t i = 0; i < 7; ++i) EXPECT_NEAR(out[i], want[i], 2e-7 * std::max(1.0, std::abs(want[i]))) << gate[i];
    EXPECT_EQ(out[7], 1e15f);
  }
}

/// By the expression of transformers' GptOssExperts in float64.
TEST(Elementwise, ClampedGatesHaveTheirValues) {
  const std::vector<float> gate{-20.0f, -1.0f, 0.5f, 3.0f, 7.0f, 9.0f}, up{0.5f, -9.0f, 9.0f, -7.0f, 0.0f, 1.0f};
  std::vector<float> out(6);
  clamped_mul({gate.data(), up.data(), out.data(), 1, 6, 6, 6, 6}, 7.0f);
  const std::vector<double> want{-4.940115362099062e-14, 0.9252254044030722, 2.803107492851041,
                                 -17.891572141753283,    6.999953128303318,  13.999906256606636};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(out[i], want[i], 4e-7 * std::max(1.0, std::abs(want[i]))) << gate[i];
}

/// By torch.softmax in float64, the second row with one number more, of which the result is left out.
TEST(Elementwise, SoftmaxHasItsValues) {
  const std::vector<double> want{9.203300761801265e-46, 0.005520139873786763,  0.03176621168961924,
                                 0.06724907067464567,   0.0762031804051564,    0.8192613973567919,
                                 3.915075873029146e-46, 0.0023482625413383603, 0.013513317904349747,
                                 0.02860769422800077,   0.03241676446026785,   0.348513062162271};
  const std::vector<float> row{-200.0f, -3.0f, 0.5f, 2.0f, 2.25f, 7.0f}, sinks{-1e4f, 4.0f};
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    std::vector<float> x = row;
    x.insert(x.end(), row.begin(), row.end());
    softmax(x.data(), 2, 6, 6, 0.5f, sinks.data());
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], want[i], 4e-7 * want[i] + 1e-38) << name_of(path) << i;
  }
}

/// A number that is none is not lost among others.
TEST(Elementwise, SoftmaxOfNanIsNan) {
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    std::vector<float> x = normal(40, 8);
    x[17] = std::nanf("");
    softmax(x.data(), 1, 40, 40, 1.0f);
    EXPECT_TRUE(std::isnan(x[3])) << name_of(path);
  }
}

TEST(Elementwise, RowsAreScaledWhereTheyLie) {
  std::vector<float> x{1, 2, 3, 4, 5, 6};
  scale_rows(x.data(), 2, 2, 3, 0.5f);
  EXPECT_EQ(x, (std::vector<float>{0.5f, 1, 3, 2, 2.5f, 6}));
}

TEST(Elementwise, EveryNumberOf16BitsIsWidened) {
  std::vector<uint16_t> numbers(65536 + 5);  // not whole vectors
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint16_t>(i);
  const auto count = static_cast<int64_t>(numbers.size());
  for (const CpuPath path : available_cpu_paths()) {
    const ScopedCpuPath forced(path);
    std::vector<float> got(numbers.size());
    for (const DType dtype : {DType::f16, DType::bf16}) {
      std::vector<float> want(numbers.size());
      for (int64_t i = 0; i < count; ++i) want[i] = half_to_f32(numbers[i], dtype);
      widen(numbers.data(), dtype, count, got.data());
      expect_same_bits(got, want, name_of(path));
    }
    const std::vector<float> x = normal(37, 5);
    widen(x.data(), DType::f32, 37, got.data());
    expect_same_bits({got.begin(), got.begin() + 37}, x, name_of(path));
  }
}

TEST(Elementwise, NormMayRunInPlace) {
  std::vector<float> x = normal(64, 7);
  const std::vector<float> w(64, 1.0f);
  std::vector<float> y(64);
  rms_norm({x.data(), w.data(), y.data(), 1, 64, 64, 64, 1e-5f});
  rms_norm({x.data(), w.data(), x.data(), 1, 64, 64, 64, 1e-5f});
  expect_same_bits(x, y, "in place");
}

}  // namespace
}  // namespace kvarena::kernels
