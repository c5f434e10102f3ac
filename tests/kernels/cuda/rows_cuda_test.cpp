// Rotation, the Hadamard transform and the row-wise pieces of a layer on the device.
#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/hadamard/hadamard.h"
#include "kernels/hadamard/hadamard_cuda.h"
#include "kernels/rope/rope_cuda.h"
#include "tests/kernels/cuda/device_support.h"

namespace kvarena::kernels {
namespace {

using test::CudaTest;
using test::expect_close;
using test::expect_same_bits;
using test::normal;
using test::OnDevice;

class RowsCuda : public CudaTest {};

/// The host's widest path, whose bits those of the device are where a contract says so; none on a machine without SIMD.
bool host_has_simd() { return !test::simd_paths().empty(); }

TEST_F(RowsCuda, RotatedQueriesHaveTheHostsBits) {
  if (!host_has_simd()) GTEST_SKIP() << "this CPU runs the reference path only, which rounds otherwise";
  const int64_t tokens = 5, heads = 3, head_dim = 64;
  for (const int64_t rotary : {64, 32, 6}) {
    std::vector<float> x = normal(tokens * heads * head_dim, 1);
    const std::vector<float> cos = normal(tokens * rotary / 2, 2), sin = normal(tokens * rotary / 2, 3);
    OnDevice device;
    RotateArgs args{device.copy(x), tokens,           heads,           head_dim, heads * head_dim, head_dim,
                    rotary,         device.copy(cos), device.copy(sin)};
    rotate_cuda(args, nullptr);
    const std::vector<float> got = test::from_device(args.x, static_cast<int64_t>(x.size()));
    args.x = x.data();
    args.cos = cos.data();
    args.sin = sin.data();
    rotate(args);
    expect_same_bits(got, x, "rotary " + std::to_string(rotary));
  }
}

TEST_F(RowsCuda, KeysTurnedInTheirCellsHaveTheHostsBits) {
  if (!host_has_simd()) GTEST_SKIP() << "this CPU runs the reference path only, which rounds otherwise";
  const int64_t head_dim = 64, half = 24, n = 70;
  for (const DType dtype : test::kDTypes) {
    for (const int64_t table_stride : {int64_t{0}, half}) {
      std::vector<float> memory(static_cast<size_t>(cell_bytes(n, head_dim, dtype) / 4));
      const Cells keys{CellKind::keys, dtype, head_dim, memory.data()};
      store_rows(keys, 0, n, normal(n * head_dim, 4).data(), head_dim);
      const std::vector<float> cos = normal(40 * half, 5), sin = normal(40 * half, 6);
      OnDevice device;
      Cells device_keys = keys;
      device_keys.data = device.copy(memory);
      const float *device_cos = device.copy(cos), *device_sin = device.copy(sin);
      const CellRotation both[] = {{device_keys, 13, 20, device_cos, device_sin, half, table_stride},
                                   {device_keys, 48, 3, device_cos, device_sin, half, table_stride}};
      CudaScratch scratch;
      rotate_cells_cuda(both, scratch, nullptr);
      rotate_cells(keys, 13, 20, cos.data(), sin.data(), half, table_stride);
      rotate_cells(keys, 48, 3, cos.data(), sin.data(), half, table_stride);
      std::vector<float> got(static_cast<size_t>(n * head_dim)), want(got.size());
      const std::vector<float> turned =
          test::from_device(static_cast<const float*>(device_keys.data), static_cast<int64_t>(memory.size()));
      load_rows({CellKind::keys, dtype, head_dim, const_cast<float*>(turned.data())}, 0, n, got.data(), head_dim);
      load_rows(keys, 0, n, want.data(), head_dim);
      expect_same_bits(got, want, name_of(dtype));
    }
  }
}

TEST_F(RowsCuda, TheHadamardTransformHasTheHostsBits) {
  if (!host_has_simd()) GTEST_SKIP() << "this CPU runs the reference path only, which rounds otherwise";
  for (const int64_t n : {1, 2, 16, 64, 128, 1024}) {
    std::vector<float> x = normal(3 * (n + 5), 7);
    OnDevice device;
    float* got = device.copy(x);
    hadamard_cuda(got, 3, n, n + 5, nullptr);
    hadamard(x.data(), 3, n, n + 5);
    expect_same_bits(test::from_device(got, static_cast<int64_t>(x.size())), x, "n=" + std::to_string(n));
  }
}

TEST_F(RowsCuda, NormsAndGatesAgreeWithTheReference) {
  const ScopedCpuPath reference(CpuPath::reference);
  for (const int64_t n : {1, 31, 576, 1500}) {
    const int64_t rows = 3, stride = n + 3;
    const std::vector<float> x = normal(rows * stride, 8), up = normal(rows * stride, 9), weight = normal(n, 10);
    OnDevice device;
    const float *device_x = device.copy(x), *device_up = device.copy(up);
    std::vector<float> want = x;
    float* got = device.copy(x);
    rms_norm_cuda({device_x, device.copy(weight), got, rows, n, stride, stride, 1e-5f}, nullptr);
    rms_norm({x.data(), weight.data(), want.data(), rows, n, stride, stride, 1e-5f});
    expect_close(test::from_device(got, rows * stride), want, 1e-6, 2e-6, "rms_norm");
    silu_mul_cuda({device_x, device_up, got, rows, n, stride, stride, stride}, nullptr);
    silu_mul({x.data(), up.data(), want.data(), rows, n, stride, stride, stride});
    expect_close(test::from_device(got, rows * stride), want, 1e-6, 2e-6, "silu_mul");
    add_into_cuda(got, device_up, rows * stride, nullptr);
    add_into(want.data(), up.data(), rows * stride);
    expect_close(test::from_device(got, rows * stride), want, 2e-6, 2e-6, "add_into");
  }
}

TEST_F(RowsCuda, TheSoftmaxHasTheHostsBits) {
  if (!host_has_simd()) GTEST_SKIP() << "this CPU runs the reference path only, which rounds otherwise";
  for (const int64_t n : {1, 31, 4096, 9001}) {
    const int64_t rows = 4, stride = n + 3;
    std::vector<float> x = normal(rows * stride, 11);
    for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] *= 40;  // of which many vanish
    x[static_cast<size_t>(3 * stride + n / 2)] = std::nanf("");
    OnDevice device;
    float* got = device.copy(x);
    softmax_cuda(got, rows, n, stride, 0.7f, nullptr);
    softmax(x.data(), rows, n, stride, 0.7f);
    const std::vector<float> all = test::from_device(got, rows * stride);
    expect_same_bits({all.begin(), all.begin() + 3 * stride}, {x.begin(), x.begin() + 3 * stride}, std::to_string(n));
    for (int64_t i = 0; i < n; ++i) EXPECT_TRUE(std::isnan(all[static_cast<size_t>(3 * stride + i)])) << i;
  }
}

TEST_F(RowsCuda, RowsBecomeTheMaximumOfTheirGroup) {
  const int64_t n = 300, stride = 310;
  std::vector<float> x = normal(6 * stride, 12);
  OnDevice device;
  float* got = device.copy(x);
  max_rows_cuda(got, 2, 3, n, stride, nullptr);
  for (const int64_t first : {0, 3}) {
    for (int64_t i = first * stride; i < first * stride + n; ++i) {
      x[static_cast<size_t>(i)] = std::max(
          {x[static_cast<size_t>(i)], x[static_cast<size_t>(i + stride)], x[static_cast<size_t>(i + 2 * stride)]});
    }
  }
  expect_same_bits(test::from_device(got, 6 * stride), x, "groups of three");
}

TEST_F(RowsCuda, ListedRowsAreGatheredAndAddedBack) {
  const int64_t rows = 5, n = 300, stride = 303;
  const std::vector<float> x = normal(rows * stride, 13), sum = normal(rows * stride, 14);
  const std::vector<WeightedRow> list = {{4, 0.25f}, {0, -1.5f}, {3, 0.0f}};
  OnDevice device;
  const float* device_x = device.copy(x);
  const WeightedRow* device_list = device.copy(list);
  float* gathered = device.memory<float>(std::ssize(list) * n);
  gather_rows_cuda(device_x, stride, device_list, std::ssize(list), n, gathered, nullptr);
  float* got = device.copy(sum);
  add_rows_cuda(gathered, device_list, std::ssize(list), n, got, stride, nullptr);
  std::vector<float> want_rows, want = sum;
  for (const WeightedRow& listed : list) {
    const auto row = std::span(x).subspan(static_cast<size_t>(listed.row * stride), n);
    want_rows.insert(want_rows.end(), row.begin(), row.end());
    for (int64_t i = 0; i < n; ++i) want[listed.row * stride + i] += listed.weight * row[i];
  }
  expect_same_bits(test::from_device(gathered, std::ssize(want_rows)), want_rows, "gathered");
  expect_same_bits(test::from_device(got, rows * stride), want, "added");
}

TEST_F(RowsCuda, ChannelsMoveToTheirPlaces) {
  const int64_t rows = 3, n = 5, x_stride = 7, to_stride = 9;
  const std::vector<float> x = normal(rows * x_stride, 15), held = normal(rows * to_stride, 16);
  const std::vector<int32_t> place = {8, 0, 3, 2, 5};
  OnDevice device;
  float* got = device.copy(held);
  move_channels_cuda({device.copy(x), got, device.copy(place), rows, n, x_stride, to_stride, 2.0f}, nullptr);
  std::vector<float> want = held;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < n; ++c) want[r * to_stride + place[c]] = 2 * x[r * x_stride + c];
  }
  expect_same_bits(test::from_device(got, rows * to_stride), want, "moved");
}

TEST_F(RowsCuda, HeadsOfATokenAreNormalisedWhereTheyLie) {
  const int64_t tokens = 3, heads = 2, n = 48, stride = 200;
  const std::vector<float> x = normal(tokens * stride, 11), weight = normal(n, 12);
  OnDevice device;
  float* got = device.copy(x);
  const float* device_weight = device.copy(weight);
  head_norm_cuda({got, device_weight, tokens, heads, n, stride, n, 1e-5f}, nullptr);
  std::vector<float> want = x;
  const ScopedCpuPath reference(CpuPath::reference);
  for (int64_t t = 0; t < tokens; ++t) {
    float* row = want.data() + t * stride;
    rms_norm({row, weight.data(), row, heads, n, n, n, 1e-5f});
  }
  expect_close(test::from_device(got, tokens * stride), want, 1e-6, 2e-6, "head_norm");
}

}  // namespace
}  // namespace kvarena::kernels
