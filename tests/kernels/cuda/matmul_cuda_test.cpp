// Products on the device against the host's definition, and that rows do not see each other.
#include "kernels/matmul/matmul_cuda.h"

#include "kernels/matmul/matmul.h"
#include "kernels/top_k/top_k_cuda.h"
#include "tests/kernels/cuda/device_support.h"

namespace kvarena::kernels {
namespace {

using test::CudaTest;
using test::expect_close;
using test::expect_same_bits;
using test::normal;
using test::OnDevice;

class MatmulCuda : public CudaTest {};

struct Shape {
  int64_t m, n, k;
};

/// Weights in the device's memory from rows of the host's.
DeviceMatrix stored(const std::vector<float>& w, int64_t n, int64_t k, DType dtype, OnDevice& device) {
  DeviceMatrix matrix(n, k, dtype);
  const float* rows = device.copy(w);
  const int64_t half = n / 2;
  matrix.store_rows(half, n - half, rows + half * k, k, nullptr);
  matrix.store_rows(0, half, rows, k, nullptr);
  return matrix;
}

/// Rows first .. first+count-1 of x.
std::vector<float> product(const DeviceMatrix& w, const std::vector<float>& x, int64_t x_stride, int64_t first,
                           int64_t count, const std::vector<float>* bias = nullptr) {
  OnDevice device;
  const int64_t stride = w.n() + 3;
  std::vector<float> there(static_cast<size_t>(count * stride), -7.0f);
  float* y = device.copy(there);
  DeviceMatmul args{device.copy(x) + first * x_stride, count, x_stride, &w};
  if (bias != nullptr) args.bias = device.copy(*bias);
  args.y = y;
  args.y_stride = stride;
  matmul_cuda(args, nullptr);
  there = test::from_device(y, count * stride);
  std::vector<float> rows;
  for (int64_t i = 0; i < count; ++i) {
    rows.insert(rows.end(), there.begin() + i * stride, there.begin() + i * stride + w.n());
    for (int64_t c = w.n(); c < stride; ++c) EXPECT_EQ(there[static_cast<size_t>(i * stride + c)], -7.0f);
  }
  return rows;
}

std::vector<float> reference(const std::vector<float>& w, const Shape& shape, DType dtype, const std::vector<float>& x,
                             int64_t x_stride, const std::vector<float>* bias) {
  const ScopedCpuPath path(CpuPath::reference);
  const PackedMatrix packed = pack_weights(w.data(), shape.n, shape.k, dtype);
  std::vector<float> y(static_cast<size_t>(shape.m * shape.n));
  matmul({x.data(), shape.m, x_stride, &packed, bias == nullptr ? nullptr : bias->data(), y.data(), shape.n});
  return y;
}

TEST_F(MatmulCuda, ProductsAgreeWithTheReferenceWithinTheRoundingOfTheSplit) {
  for (const Shape& shape : {Shape{1, 16, 16}, Shape{1, 40, 300}, Shape{3, 17, 530}, Shape{9, 33, 64},
                             Shape{20, 64, 270}, Shape{2, 5, 7}, Shape{40, 24, 34}}) {
    const int64_t stride = shape.k + 4;
    const std::vector<float> x = normal(shape.m * stride, 1), w = normal(shape.n * shape.k, 2),
                             bias = normal(shape.n, 3);
    for (const DType dtype : test::kDTypes) {
      OnDevice device;
      const DeviceMatrix matrix = stored(w, shape.n, shape.k, dtype, device);
      // Error of each product: 2^-17 (bf16), 2^-22 (f16) of its size; sums grow with the square root of k.
      const double part = dtype == DType::bf16 ? 0x1p-16 : 0x1p-19;
      const double limit = part * 4 * std::sqrt(static_cast<double>(shape.k));
      const std::string what = std::string(name_of(dtype)) + " " + std::to_string(shape.m) + "x" +
                               std::to_string(shape.n) + "x" + std::to_string(shape.k);
      expect_close(product(matrix, x, stride, 0, shape.m, &bias), reference(w, shape, dtype, x, stride, &bias), limit,
                   0, what);
    }
  }
}

TEST_F(MatmulCuda, NothingOfASixteenBitFactorIsLost) {
  // Factors that the weights' format holds need no low part: products of small integers are exact.
  const Shape shape{5, 32, 512};
  std::vector<float> x(static_cast<size_t>(shape.m * shape.k)), w(static_cast<size_t>(shape.n * shape.k));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7 % 31) - 15);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(static_cast<int>(i * 5 % 17) - 8);
  for (const DType dtype : test::kDTypes) {
    OnDevice device;
    const DeviceMatrix matrix = stored(w, shape.n, shape.k, dtype, device);
    expect_same_bits(product(matrix, x, shape.k, 0, shape.m), reference(w, shape, dtype, x, shape.k, nullptr),
                     name_of(dtype));
  }
}

TEST_F(MatmulCuda, ARowHasTheSameBitsAloneAndAmongAnyOthers) {
  const Shape most{kTiledRows + 1, 18, 270};
  const std::vector<float> x = normal(most.m * most.k, 4), w = normal(most.n * most.k, 5);
  for (const DType dtype : test::kDTypes) {
    const Shape shape{dtype == DType::f32 ? 50 : most.m, most.n, most.k};  // only 16-bit weights have tiles of rows
    OnDevice device;
    const DeviceMatrix matrix = stored(w, shape.n, shape.k, dtype, device);
    const std::vector<float> all = product(matrix, x, shape.k, 0, shape.m);
    for (const auto& [first, count] :
         {std::pair<int64_t, int64_t>{0, 1}, {shape.m - 1, 1}, {5, 8}, {30, 11}, {shape.m - 21, 21}}) {
      const std::vector<float> want(all.begin() + first * shape.n, all.begin() + (first + count) * shape.n);
      expect_same_bits(product(matrix, x, shape.k, first, count), want,
                       std::string(name_of(dtype)) + " rows " + std::to_string(first) + "+" + std::to_string(count));
    }
  }
}

TEST_F(MatmulCuda, AnAddedProductIsTheProductAndASum) {
  const Shape shape{3, 20, 48};
  const std::vector<float> x = normal(shape.m * shape.k, 6), w = normal(shape.n * shape.k, 7),
                           stream = normal(shape.m * shape.n, 8), bias = normal(shape.n, 9);
  OnDevice device;
  const DeviceMatrix matrix = stored(w, shape.n, shape.k, DType::bf16, device);
  std::vector<float> want = product(matrix, x, shape.k, 0, shape.m, &bias);
  for (size_t i = 0; i < want.size(); ++i) want[i] = stream[i] + want[i];
  float* y = device.copy(stream);
  matmul_cuda({device.copy(x), shape.m, shape.k, &matrix, device.copy(bias), y, shape.n, true}, nullptr);
  expect_same_bits(test::from_device(y, static_cast<int64_t>(want.size())), want, "added");
}

TEST_F(MatmulCuda, GatheredRowsAreTheStoredOnes) {
  const int64_t n = 21, k = 36;
  const std::vector<float> w = normal(n * k, 10);
  const std::vector<int32_t> tokens{20, 0, 7, 7};
  for (const DType dtype : test::kDTypes) {
    OnDevice device;
    const DeviceMatrix matrix = stored(w, n, k, dtype, device);
    float* x = device.memory<float>(4 * k);
    matrix.gather_rows(device.copy(tokens), 4, x, k, nullptr);
    const PackedMatrix packed = pack_weights(w.data(), n, k, dtype);
    std::vector<float> want(static_cast<size_t>(4 * k));
    for (size_t i = 0; i < tokens.size(); ++i) packed.unpack_row(tokens[i], want.data() + static_cast<int64_t>(i) * k);
    expect_same_bits(test::from_device(x, 4 * k), want, name_of(dtype));
  }
}

TEST_F(MatmulCuda, TheLargestOfARowIsTheFirstOfEquals) {
  const int64_t n = 3000, rows = 4;
  std::vector<float> scores = normal(rows * n, 11);
  scores[1700] = scores[40] = 99;                                           // row 0
  for (int64_t i = 0; i < n; ++i) scores[static_cast<size_t>(n + i)] = -1;  // row 1: all alike
  scores[static_cast<size_t>(2 * n + 2999)] = std::numeric_limits<float>::infinity();
  scores[static_cast<size_t>(3 * n + 8)] = std::numeric_limits<float>::quiet_NaN();
  OnDevice device;
  int32_t* index = device.memory<int32_t>(rows);
  argmax_rows_cuda(device.copy(scores), rows, n, n, index, nullptr);
  EXPECT_EQ(test::from_device(index, rows), (std::vector<int32_t>{40, 0, 2999, -1}));
}

}  // namespace
}  // namespace kvarena::kernels
