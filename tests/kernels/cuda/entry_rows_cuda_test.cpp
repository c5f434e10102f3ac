#include "kernels/entry_rows/entry_rows_cuda.h"

#include <cmath>
#include <functional>

#include "tests/kernels/cuda/device_support.h"

namespace kvarena::kernels {
namespace {

using test::CudaTest;
using test::expect_same_bits;
using test::normal;
using test::OnDevice;

/// Rows of 3 heads of 80 channels, once on the host and once on the device.
class EntryRowsCuda : public CudaTest {
 protected:
  static constexpr int64_t kCount = 37, kHeads = 3, kHeadDim = 80, kWidth = kHeads * kHeadDim;

  [[nodiscard]] EntryRows rows() { return {device.copy(host), kCount, kHeads, kHeadDim}; }
  void expect_host_bits(const EntryRows& rows) const {
    expect_same_bits(test::from_device(rows.x, kCount * kWidth), host, "rows");
  }
  /// Calls visit(number, entry, channel).
  void each(const std::function<void(float&, int64_t, int64_t)>& visit) {
    for (int64_t i = 0; i < kCount * kWidth; ++i) visit(host[static_cast<size_t>(i)], i / kWidth, i % kWidth);
  }
  static std::vector<RowScale> scales(int64_t count) {
    const std::vector<float> numbers = normal(2 * count, 5);
    std::vector<RowScale> made;
    for (size_t i = 0; i < numbers.size(); i += 2) made.push_back({numbers[i], numbers[i + 1]});
    return made;
  }

  OnDevice device;
  CudaScratch scratch;
  std::vector<float> host = normal(kCount * kWidth, 3);
};

TEST_F(EntryRowsCuda, ScalesChannels) {
  const EntryRows to = rows();
  const std::vector<RowScale> by = scales(kWidth);
  scale_channels_cuda(to, device.copy(by), nullptr);
  each([&](float& x, int64_t, int64_t c) { x = std::fma(x, by[c].factor, by[c].offset); });
  expect_host_bits(to);
}

TEST_F(EntryRowsCuda, ScalesEntriesByHeadOrForAllHeads) {
  for (const bool shared : {true, false}) {
    const EntryRows to = rows();
    const std::vector<RowScale> by = scales(shared ? kCount : kCount * kHeads);
    scale_entries_cuda(to, device.copy(by), shared, nullptr);
    each([&](float& x, int64_t i, int64_t c) {
      const RowScale& own = by[shared ? i : i * kHeads + c / kHeadDim];
      x = std::fma(x, own.factor, own.offset);
    });
    expect_host_bits(to);
  }
}

TEST_F(EntryRowsCuda, ScalesChannelsOfTiles) {
  const int64_t first = 13, tile = 16;
  const EntryRows to = rows();
  const std::vector<RowScale> by = scales(kWidth * ((first + kCount) / tile + 1));
  scale_tiles_cuda(to, first, tile, device.copy(by), nullptr);
  each([&](float& x, int64_t i, int64_t c) {
    const RowScale& own = by[(first + i) / tile * kWidth + c];
    x = std::fma(x, own.factor, own.offset);
  });
  expect_host_bits(to);
}

TEST_F(EntryRowsCuda, TurnsLengthsAndAnglesToCoordinates) {
  const EntryRows to = rows();
  from_polar_cuda(to, nullptr);
  const std::vector<float> got = test::from_device(to.x, kCount * kWidth);
  each([&](float&, int64_t i, int64_t c) {
    if (c % kHeadDim >= kHeadDim / 2) return;
    const int64_t at = i * kWidth + c, other = at + kHeadDim / 2;
    EXPECT_NEAR(got[at], host[at] * std::cos(host[other]), 1e-5);
    EXPECT_NEAR(got[other], host[at] * std::sin(host[other]), 1e-5);
  });
}

TEST_F(EntryRowsCuda, PutsNumbersWhereTheyBelong) {
  std::vector<int32_t> starts{0};
  std::vector<PlacedNumber> numbers;
  for (int32_t i = 0; i < kCount; ++i) {
    // None of some entries, and of one all channels.
    const int32_t count = i % 5 == 0 ? 0 : i == 7 ? static_cast<int32_t>(kWidth) : i % 4;
    for (int32_t k = 0; k < count; ++k) {
      numbers.push_back({static_cast<int32_t>((k * 7 + i) % kWidth), static_cast<float>(i) + 0.5F});
    }
    starts.push_back(static_cast<int32_t>(numbers.size()));
  }
  const EntryRows to = rows();
  place_numbers_cuda(to, device.copy(starts), device.copy(numbers), nullptr);
  for (int64_t i = 0; i < kCount; ++i) {
    for (int32_t k = starts[i]; k < starts[i + 1]; ++k) host[i * kWidth + numbers[k].channel] = numbers[k].value;
  }
  expect_host_bits(to);
}

TEST_F(EntryRowsCuda, AddsProductsOfManyRunsAndRanks) {
  const EntryRows to = rows();
  std::vector<RowProduct> products;
  const auto narrow = [&](const std::vector<float>& numbers, DType dtype, std::vector<float>& kept) -> const void* {
    kept = numbers;
    if (dtype == DType::f32) return device.copy(numbers);
    std::vector<uint16_t> bits;
    for (float& x : kept) {
      bits.push_back(dtype == DType::f16 ? f32_to_f16(x) : f32_to_bf16(x));
      x = dtype == DType::f16 ? f16_to_f32(bits.back()) : bf16_to_f32(bits.back());
    }
    return device.copy(bits);
  };
  for (int64_t head = 0; head < kHeads; ++head) {
    const int64_t rank = 1 + 3 * head, first = head * 4, count = head == 1 ? 0 : kCount - first - 2;
    const DType dtype = test::kDTypes[static_cast<size_t>(head)];
    std::vector<float> a, b;
    const void* const device_a = narrow(normal(count * rank, 7), dtype, a);
    const void* const device_b = narrow(normal(rank * kHeadDim, 8), dtype, b);
    products.push_back(
        {to.x + first * kWidth + head * kHeadDim, kWidth, count, kHeadDim, rank, dtype, device_a, device_b});
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t c = 0; c < kHeadDim; ++c) {
        float& x = host[(first + i) * kWidth + head * kHeadDim + c];
        for (int64_t k = 0; k < rank; ++k) x = std::fma(a[i * rank + k], b[k * kHeadDim + c], x);
      }
    }
  }
  add_products_cuda(products, scratch, nullptr);
  expect_host_bits(to);
}

TEST_F(EntryRowsCuda, AddsASketchOfSigns) {
  const EntryRows to = rows();
  const std::vector<float> matrix = normal(kHeadDim * kHeadDim, 9), lengths = normal(kCount * kHeads, 10);
  std::vector<uint16_t> bits, signs;
  for (const float x : lengths) bits.push_back(f32_to_f16(std::fabs(x)));
  for (int64_t i = 0; i < kCount * kHeads * kHeadDim / 16; ++i) signs.push_back(static_cast<uint16_t>(i * 40503));
  add_signed_rows_cuda(to, {device.copy(signs), device.copy(bits), device.copy(matrix), 0.25F}, nullptr);
  each([&](float& x, int64_t i, int64_t c) {
    const int64_t row = i * kHeads + c / kHeadDim;
    const float length = 0.25F * f16_to_f32(bits[row]);
    for (int64_t k = 0; k < kHeadDim; ++k) {
      const bool minus = (signs[row * kHeadDim / 16 + k / 16] >> (k % 16) & 1) != 0;
      x = std::fma(minus ? -length : length, matrix[k * kHeadDim + c % kHeadDim], x);
    }
  });
  expect_host_bits(to);
}

TEST_F(EntryRowsCuda, TurnsPairsByTheirPositions) {
  constexpr int64_t kHalf = 32;  // the last 16 channels of a head stay
  std::vector<float> cos, sin;
  for (int64_t i = 0; i < 200 * kHalf; ++i) {
    cos.push_back(std::cos(static_cast<float>(i)));
    sin.push_back(std::sin(static_cast<float>(i)));
  }
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < kHeads * kCount; ++i) positions.push_back(static_cast<int32_t>(i * 31 % 200));
  const EntryRows to = rows();
  rotate_rows_cuda(to, {device.copy(positions), device.copy(cos), device.copy(sin), kHalf}, nullptr);
  const std::vector<float> before = host;
  each([&](float& x, int64_t i, int64_t c) {
    const int64_t head = c / kHeadDim, channel = c % kHeadDim;
    if (channel >= 2 * kHalf) return;
    const int64_t at = positions[i * kHeads + head] * kHalf + channel % kHalf;
    const float* const pair = &before[i * kWidth + head * kHeadDim + channel % kHalf];
    x = channel < kHalf ? std::fma(-pair[kHalf], sin[at], pair[0] * cos[at])
                        : std::fma(pair[0], sin[at], pair[kHalf] * cos[at]);
  });
  expect_host_bits(to);
}

}  // namespace
}  // namespace kvarena::kernels
