#include "kernels/quantize/quantize_cuda.h"

#include "kernels/quantize/fp4.h"
#include "tests/kernels/cuda/device_support.h"

namespace kvarena::kernels {
namespace {

using test::CudaTest;
using test::normal;
using test::OnDevice;
using test::PackedMemory;

class QuantizeCuda : public CudaTest {};

std::vector<QuantFormat> formats() {
  static const std::vector<float> codebook{-1.5f, -0.4f, 0.4f, 1.5f};
  std::vector<QuantFormat> all{
      {.bits = 1, .meta = DType::f16, .rule = QuantRule::midpoint},
      {.bits = 3, .rule = QuantRule::midpoint},
      {.bits = 2, .rule = QuantRule::zero_point},
      {.bits = 4, .meta = DType::f16, .rule = QuantRule::whole_zero},
      {.bits = 4, .rule = QuantRule::absmax, .first_level = -8, .clip = 0.9f},
      {.bits = 8, .meta = DType::f16, .rule = QuantRule::ggml_q8, .first_level = -127},
      {.bits = 4, .meta = DType::f16, .rule = QuantRule::ggml_signed, .first_level = -8},
      {.bits = 5, .meta = DType::f16, .rule = QuantRule::ggml_signed, .first_level = -16},
      {.bits = 5, .meta = DType::f16, .rule = QuantRule::ggml_range},
      {.bits = 2,
       .meta = DType::f16,
       .rule = QuantRule::ggml_fit,
       .levels = Levels::codebook,
       .codebook = codebook.data()},
      {.bits = 8, .rule = QuantRule::absmax, .levels = Levels::e4m3},
      {.bits = 8, .rule = QuantRule::absmax, .levels = Levels::e5m2},
      {.bits = 2, .rule = QuantRule::norm, .levels = Levels::codebook, .codebook = codebook.data()},
      {.bits = 2, .rule = QuantRule::plain_norm, .levels = Levels::codebook, .codebook = codebook.data()},
      {.bits = 2, .rule = QuantRule::none, .levels = Levels::codebook, .codebook = codebook.data()},
      {.bits = 4, .rule = QuantRule::mx, .levels = Levels::codebook, .codebook = kLevelsE2M1},
      {.bits = 4, .rule = QuantRule::nv, .levels = Levels::codebook, .codebook = kLevelsE2M1}};
  for (const int bits : {1, 2, 3, 4, 5, 8}) all.push_back({.bits = bits});
  return all;
}

std::string describe(CellKind kind, const QuantFormat& format, int64_t head_dim) {
  return std::string(kind == CellKind::keys ? "keys" : "values") + " bits=" + std::to_string(format.bits) +
         " rule=" + std::to_string(static_cast<int>(format.rule)) +
         " levels=" + std::to_string(static_cast<int>(format.levels)) +
         " tokens=" + std::to_string(format.token_groups) + " head_dim=" + std::to_string(head_dim);
}

/// Encodes `pieces` of rows one after another, on the host and on the device, into memory that holds other bits; all
/// that was touched must agree, and what was not must be as before.
void expect_equal_codes(CellKind kind, const QuantFormat& format, int64_t head_dim, const std::vector<float>& rows,
                        const std::vector<std::pair<int64_t, int64_t>>& pieces) {
  const int64_t entries = static_cast<int64_t>(rows.size()) / head_dim;
  PackedMemory host(kind, format, head_dim, entries);
  std::fill(host.scale.begin(), host.scale.end(), uint16_t{0x3c00});  // numbers, for the rule `given`
  std::fill(host.zero.begin(), host.zero.end(), uint16_t{0x3400});
  OnDevice device;
  const PackedEntries packed = device.copy(host.view, entries);
  const float* device_rows = device.copy(rows);
  CudaScratch scratch;
  for (const auto& [position, count] : pieces) {
    encode_rows(host.view, position, count, rows.data() + position * head_dim, head_dim);
    const RowEncode item{packed, position, count, device_rows + position * head_dim, head_dim};
    encode_rows_cuda({&item, 1}, scratch, nullptr);
  }
  const std::string what = describe(kind, format, head_dim);
  EXPECT_EQ(test::from_device(packed.codes, static_cast<int64_t>(host.codes.size())), host.codes) << what;
  const auto meta = static_cast<int64_t>(host.scale.size());
  if (packed.scale != nullptr) {
    EXPECT_EQ(test::from_device(packed.scale, meta), host.scale) << what;
  }
  if (packed.zero != nullptr) {
    EXPECT_EQ(test::from_device(packed.zero, meta), host.zero) << what;
  }
  for (const auto& [position, count] : pieces) {
    std::vector<float> want(static_cast<size_t>(count * head_dim));
    decode_rows(host.view, position, count, want.data(), head_dim);
    auto* got = device.memory<float>(count * head_dim);
    const RowDecode items[] = {{packed, position, count, got, head_dim}};
    decode_rows_cuda(items, scratch, nullptr);
    test::expect_same_bits(test::from_device(got, count * head_dim), want, what);
    decode_rows_cuda(items, scratch, nullptr, 0.0625f);
    for (float& number : want) number = std::fma(0.0625f, number, number);
    test::expect_same_bits(test::from_device(got, count * head_dim), want, what);
  }
}

TEST_F(QuantizeCuda, HasTheBitsOfTheHost) {
  for (QuantFormat format : formats()) {
    for (const int64_t head_dim : {64, 80}) {
      format.group_size = head_dim == 80 ? 16 : 32;
      std::vector<float> rows = normal(96 * head_dim, 3);
      std::fill_n(rows.begin(), 40, 1.25f);                                              // a constant group of a token
      for (int64_t c = 0; c < head_dim; ++c) rows[head_dim + c] = c % 2 == 0 ? 3 : -3;   // equally large, both signs
      for (int64_t e = 0; e < 96; ++e) rows[static_cast<size_t>(e * head_dim + 3)] = 0;  // and of a channel
      format.token_groups = false;
      if (!has_byte_scales(format)) expect_equal_codes(CellKind::keys, format, head_dim, rows, {{0, 64}, {64, 32}});
      expect_equal_codes(CellKind::values, format, head_dim, rows, {{0, 7}, {7, 1}, {8, 31}, {40, 1}});
      format.token_groups = true;
      expect_equal_codes(CellKind::keys, format, head_dim, rows, {{5, 1}, {6, 40}});
    }
  }
}

TEST_F(QuantizeCuda, GivenScalesTakeAnyRunOfEntries) {
  const QuantFormat format{.bits = 4, .group_size = 32, .meta = DType::f16, .rule = QuantRule::given};
  expect_equal_codes(CellKind::keys, format, 64, normal(100 * 64, 5), {{3, 1}, {4, 70}, {90, 10}});
}

TEST_F(QuantizeCuda, HeadsOfDifferentFormatsAndLengthsShareACall) {
  const std::vector<float> rows = normal(96 * 64, 6);
  OnDevice device;
  const float* device_rows = device.copy(rows);
  std::vector<PackedMemory> host;
  std::vector<RowEncode> items;
  const std::pair<CellKind, QuantFormat> kinds[] = {{CellKind::keys, {.bits = 4, .group_size = 32}},
                                                    {CellKind::values, {.bits = 3, .group_size = 16}},
                                                    {CellKind::keys, {.bits = 2, .group_size = 96}},
                                                    {CellKind::values, {.bits = 8, .group_size = 64}}};
  for (const auto& [kind, format] : kinds) {
    const int64_t count = items.size() == 1 ? 5 : items.size() == 3 ? 0 : 96;
    host.emplace_back(kind, format, 64, 96);
    items.push_back({device.copy(host.back().view, 96), 0, count, device_rows, 64});
    encode_rows(host.back().view, 0, count, rows.data(), 64);
  }
  CudaScratch scratch;
  encode_rows_cuda(items, scratch, nullptr);
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(test::from_device(items[i].to.codes, static_cast<int64_t>(host[i].codes.size())), host[i].codes) << i;
    EXPECT_EQ(test::from_device(items[i].to.scale, static_cast<int64_t>(host[i].scale.size())), host[i].scale) << i;
  }
}

TEST_F(QuantizeCuda, GatheredValuesHaveTheHostsBits) {
  const std::vector<int32_t> index{0, 1, 5, 17, 18, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 63, 70};
  std::vector<QuantFormat> formats{
      {.bits = 4, .group_size = 16, .rule = QuantRule::nv, .levels = Levels::codebook, .codebook = kLevelsE2M1}};
  for (const int bits : {1, 2, 3, 4, 8}) formats.push_back({.bits = bits, .group_size = 16});
  for (const QuantFormat& format : formats) {
    const std::string bits = describe(CellKind::values, format, 80);
    const std::vector<float> rows = normal(96 * 80, 7);
    PackedMemory from(CellKind::values, format, 80, 96), to(CellKind::values, format, 80, 40);
    encode_rows(from.view, 0, 96, rows.data(), 80);
    OnDevice device;
    const auto count = static_cast<int64_t>(index.size());
    const PackedGather items[] = {{device.copy(from.view, 96), device.copy(index), count, device.copy(to.view, 40), 13},
                                  {device.copy(from.view, 96), nullptr, 0, device.copy(to.view, 40), 0}};
    CudaScratch scratch;
    gather_packed_values_cuda(items, scratch, nullptr);
    gather_packed_values(from.view, index.data(), count, to.view, 13);
    const PackedEntries& got = items[0].to;
    EXPECT_EQ(test::from_device(got.codes, static_cast<int64_t>(to.codes.size())), to.codes) << bits;
    EXPECT_EQ(test::from_device(got.scale, static_cast<int64_t>(to.scale.size())), to.scale) << bits;
    if (got.zero == nullptr) continue;
    EXPECT_EQ(test::from_device(got.zero, static_cast<int64_t>(to.zero.size())), to.zero) << bits;
  }
}

TEST_F(QuantizeCuda, BadFormatsAreRefused) {
  PackedMemory memory(CellKind::keys, {.bits = 4, .group_size = 32}, 64, 64);
  CudaScratch scratch;
  RowEncode item{memory.view, 16, 32, nullptr, 64};
  EXPECT_THROW(encode_rows_cuda({&item, 1}, scratch, nullptr), std::logic_error);
  item.position = 0;
  item.to.format.bits = 6;
  EXPECT_THROW(encode_rows_cuda({&item, 1}, scratch, nullptr), std::logic_error);
}

}  // namespace
}  // namespace kvarena::kernels
