#include "kernels/quantize/quantize.h"

#include <algorithm>
#include <set>

#include "kernels/quantize/fp4.h"
#include "tests/kernels/packed_support.h"

namespace kvarena::kernels {
namespace {

using test::expect_same_bits;
using test::normal;
using test::PackedMemory;

std::vector<int> codes_of(const std::vector<float>& x, const QuantFormat& format, GroupMeta* meta = nullptr) {
  std::vector<uint8_t> codes(x.size());
  const GroupMeta got = quantize_group(x.data(), static_cast<int64_t>(x.size()), 1, format, codes.data());
  if (meta != nullptr) *meta = got;
  return {codes.begin(), codes.end()};
}

TEST(Quantize, TwoBitsOfFourEvenStepsAreExact) {
  GroupMeta meta;
  EXPECT_EQ(codes_of({-1, 0, 1, 2}, {.bits = 2}, &meta), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(meta.scale, 1.0f);
  EXPECT_EQ(meta.zero, -1.0f);
}

TEST(Quantize, OneBitMidpointsSitAtTheQuarters) {
  GroupMeta meta;
  const QuantFormat format{.bits = 1, .rule = QuantRule::midpoint};
  EXPECT_EQ(codes_of({0, 1.9f, 2.1f, 4}, format, &meta), (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(meta.scale, 2.0f);
  EXPECT_EQ(meta.zero, 1.0f);
}

TEST(Quantize, MidpointsOfTwoBitsSitAtTheEighths) {
  GroupMeta meta;
  const QuantFormat format{.bits = 2, .rule = QuantRule::midpoint};
  EXPECT_EQ(codes_of({0, 0.9f, 1.1f, 2.9f, 3.1f, 4}, format, &meta), (std::vector<int>{0, 0, 1, 2, 3, 3}));
  EXPECT_EQ(meta.scale, 1.0f);
  EXPECT_EQ(meta.zero, 0.5f);
}

TEST(Quantize, TiesGoToTheEvenCode) {
  // scale 1, zero 0: 0.5, 1.5 and 2.5 lie between codes
  EXPECT_EQ(codes_of({0, 0.5f, 1.5f, 2.5f, 3}, {.bits = 2}), (std::vector<int>{0, 0, 2, 2, 3}));
}

TEST(Quantize, AConstantGroupComesBackExactly) {
  for (const QuantFormat& format : {QuantFormat{.bits = 4}, QuantFormat{.bits = 1, .rule = QuantRule::midpoint}}) {
    GroupMeta meta;
    EXPECT_EQ(codes_of({3.5f, 3.5f, 3.5f}, format, &meta), (std::vector<int>{0, 0, 0}));
    EXPECT_EQ(meta.scale, 1.0f);
    EXPECT_EQ(meta.zero, 3.5f);
  }
}

TEST(Quantize, AnOffsetOfTheWholeGroupLeavesCodesAlone) {
  std::vector<float> x{0, 0.25f, 0.5f, 1.75f, 3, 2.25f}, shifted = x;
  for (float& v : shifted) v += 8;
  EXPECT_EQ(codes_of(x, {.bits = 3}), codes_of(shifted, {.bits = 3}));
}

TEST(Quantize, NaNAndInfinityStillGiveCodesInRange) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    for (const int code : codes_of({1, bad, 2, 3}, {.bits = 2})) EXPECT_TRUE(code >= 0 && code <= 3);
  }
}

TEST(Quantize, CodesArePackedLittleEndFirst) {
  const std::vector<uint8_t> two{0, 1, 2, 3}, four{1, 2}, three{1, 2, 3, 4, 5, 6, 7, 0};
  uint8_t bytes[3] = {};
  pack_codes(two.data(), 4, 2, bytes);
  EXPECT_EQ(bytes[0], 0xE4);
  pack_codes(four.data(), 2, 4, bytes);
  EXPECT_EQ(bytes[0], 0x21);
  pack_codes(three.data(), 8, 3, bytes);
  EXPECT_EQ(bytes[0] | bytes[1] << 8 | bytes[2] << 16, 1 | 2 << 3 | 3 << 6 | 4 << 9 | 5 << 12 | 6 << 15 | 7 << 18);
  uint8_t back[8];
  unpack_codes(bytes, 8, 3, back);
  EXPECT_EQ(std::vector<uint8_t>(back, back + 8), three);
}

TEST(Quantize, EveryBitOfAPackedCodeStandsAtItsPlace) {
  for (int bits = 1; bits <= 8; ++bits) {
    constexpr int64_t kCount = 13;  // ends within a byte
    std::vector<uint8_t> codes, bytes(static_cast<size_t>((kCount * bits + 7) / 8) + 1, 0xA5), back(kCount);
    for (int64_t j = 0; j < kCount; ++j) codes.push_back(static_cast<uint8_t>((j * 97 + 13) & ((1 << bits) - 1)));
    pack_codes(codes.data(), kCount, bits, bytes.data());
    EXPECT_EQ(bytes.back(), 0xA5) << bits << " bits: what is behind the codes";
    for (int64_t place = 0; place < std::ssize(bytes) * 8 - 8; ++place) {
      const int want = place < kCount * bits ? codes[place / bits] >> (place % bits) & 1 : 0;
      EXPECT_EQ(bytes[place / 8] >> (place % 8) & 1, want) << bits << " bits, place " << place;
    }
    unpack_codes(bytes.data(), kCount, bits, back.data());
    EXPECT_EQ(back, codes) << bits << " bits";
  }
}

TEST(Quantize, ACellHoldsTheLanesThatTheLayoutNames) {
  // One group of 16 keys: channel c of entry e gets code (c + e) % 16 with scale 1, zero 0.
  PackedMemory keys(CellKind::keys, {.bits = 4, .group_size = 16}, 16, 16);
  std::vector<float> rows(256);
  for (int e = 0; e < 16; ++e) {
    for (int c = 0; c < 16; ++c) rows[static_cast<size_t>(e * 16 + c)] = static_cast<float>((c + e) % 16);
  }
  encode_rows(keys.view, 0, 16, rows.data(), 16);
  EXPECT_EQ(keys.codes[0], 0x76543210u);       // lane 0 = entry 0: channels 0..7
  EXPECT_EQ(keys.codes[3], 0xA9876543u);       // lane 3 = entry 3
  EXPECT_EQ(keys.codes[16 + 2], 0x10FEDCBAu);  // second plane: channels 8..15 of entry 2
  PackedMemory values(CellKind::values, {.bits = 4, .group_size = 16}, 16, 16);
  encode_rows(values.view, 0, 16, rows.data(), 16);
  EXPECT_EQ(values.codes[0], 0x76543210u);  // lane 0 = channel 0: entries 0..7
  EXPECT_EQ(values.codes[5], 0xCBA98765u);
}

TEST(Quantize, DecodedValuesLieWithinHalfAStep) {
  for (const CellKind kind : {CellKind::keys, CellKind::values}) {
    for (const int bits : {1, 2, 3, 4, 8}) {
      for (const int64_t head_dim : {64, 80, 128}) {
        for (const DType meta : {DType::f16, DType::bf16}) {
          const int64_t group = head_dim == 80 ? 16 : 32, n = 96;
          PackedMemory packed(kind, {.bits = bits, .group_size = group, .meta = meta}, head_dim, n);
          const std::vector<float> rows = normal(n * head_dim, 40 + static_cast<uint64_t>(bits));
          encode_rows(packed.view, 0, n, rows.data(), head_dim);
          std::vector<float> back(rows.size());
          decode_rows(packed.view, 0, n, back.data(), head_dim);
          for (int64_t e = 0; e < n; ++e) {
            for (int64_t c = 0; c < head_dim; ++c) {
              float low = 1e9f, high = -1e9f;
              for (int64_t i = 0; i < group; ++i) {
                const int64_t at = kind == CellKind::keys ? (e / group * group + i) * head_dim + c
                                                          : e * head_dim + c / group * group + i;
                low = std::min(low, rows[static_cast<size_t>(at)]);
                high = std::max(high, rows[static_cast<size_t>(at)]);
              }
              // half a step, and what rounding scale and zero to 16 bits can move (8 bits of mantissa in bf16)
              const float slack = (meta == DType::bf16 ? 0.004f : 0.0005f) * (std::fabs(low) + (high - low) + 1e-3f);
              const size_t at = static_cast<size_t>(e * head_dim + c);
              ASSERT_LE(std::fabs(back[at] - rows[at]), (high - low) / static_cast<float>((1 << bits) - 1) / 2 + slack)
                  << "bits " << bits << " entry " << e << " channel " << c;
            }
          }
        }
      }
    }
  }
}

TEST(Quantize, EncodingTokenByTokenEqualsEncodingAtOnce) {
  for (const int bits : {1, 2, 3, 4, 8}) {
    PackedMemory at_once(CellKind::values, {.bits = bits}, 64, 50),
        one_by_one(CellKind::values, {.bits = bits}, 64, 50);
    const std::vector<float> rows = normal(50 * 64, 60);
    encode_rows(at_once.view, 0, 50, rows.data(), 64);
    for (int64_t e = 0; e < 50; ++e) encode_rows(one_by_one.view, e, 1, rows.data() + e * 64, 64);
    EXPECT_EQ(at_once.codes, one_by_one.codes) << bits;
    EXPECT_EQ(at_once.scale, one_by_one.scale) << bits;
  }
}

TEST(Quantize, GatheredValuesDecodeToTheSameBits) {
  PackedMemory packed(CellKind::values, {.bits = 3}, 64, 60);
  const std::vector<float> rows = normal(60 * 64, 61);
  encode_rows(packed.view, 0, 60, rows.data(), 64);
  std::vector<float> all(60 * 64), got(4 * 64), want;
  decode_rows(packed.view, 0, 60, all.data(), 64);
  const std::vector<int32_t> index{2, 17, 31, 59};
  for (const int32_t e : index) want.insert(want.end(), all.begin() + e * 64, all.begin() + (e + 1) * 64);
  gather_packed_values(packed.view, index.data(), 4, packed.view, 0);
  decode_rows(packed.view, 0, 4, got.data(), 64);
  expect_same_bits(got, want, "in place");
}

TEST(Quantize, BytesPerEntryAreBitsPlusMeta) {
  // 4 bits, group 32: 4 + 32/32 = 5 bits an element
  const int64_t n = 128, d = 64;
  const int64_t bytes = 4 * packed_code_dwords(n, d, 4) + 2 * 2 * packed_meta_count(CellKind::keys, n, d, {});
  EXPECT_EQ(bytes * 8, n * d * 5);
  EXPECT_EQ(4 * packed_code_dwords(n, d, 1) + 4 * packed_meta_count(CellKind::values, n, d, {.group_size = 64}),
            n * d * 3 / 2 / 8);
  EXPECT_EQ(4 * packed_code_dwords(n, d, 3) * 8, n * d * 3);
  EXPECT_EQ(meta_size({.rule = QuantRule::nv}), 1);
  EXPECT_EQ(meta_size({}), 2);
}

TEST(Quantize, ImpossibleFormatsAreRefused) {
  PackedMemory keys(CellKind::keys, {.bits = 4, .group_size = 32}, 64, 64);
  const std::vector<float> rows(64 * 64);
  EXPECT_THROW(encode_rows(keys.view, 16, 32, rows.data(), 64), std::logic_error);
  keys.view.format.bits = 6;
  EXPECT_THROW(encode_rows(keys.view, 0, 32, rows.data(), 64), std::logic_error);
  keys.view.format = {.rule = QuantRule::mx, .levels = Levels::codebook, .codebook = kLevelsE2M1};
  EXPECT_THROW(encode_rows(keys.view, 0, 32, rows.data(), 64), std::logic_error);  // along tokens
}

std::vector<float> decoded(const std::vector<float>& x, const QuantFormat& format) {
  GroupMeta meta;
  std::vector<float> back;
  for (const int code : codes_of(x, format, &meta)) {
    back.push_back(meta.scale * level_of(format, static_cast<uint32_t>(code)) + meta.zero);
  }
  return back;
}

TEST(Quantize, ZeroPointsOfSixteenEvenStepsAreExact) {
  for (const float first : {0.0f, 20.0f, -35.0f}) {
    std::vector<float> x(16);
    for (size_t i = 0; i < x.size(); ++i) x[i] = first + static_cast<float>(i);
    for (const QuantRule rule : {QuantRule::zero_point, QuantRule::whole_zero}) {
      GroupMeta meta;
      (void)codes_of(x, {.bits = 4, .meta = DType::f16, .rule = rule}, &meta);
      EXPECT_EQ(meta.scale, 1.0f);
      EXPECT_EQ(meta.zero, first);
      EXPECT_EQ(decoded(x, {.bits = 4, .meta = DType::f16, .rule = rule}), x);
    }
  }
}

TEST(Quantize, AWholeZeroPointKeepsZeroExact) {
  const std::vector<float> back = decoded({-0.7f, 0, 0.3f, 1.9f}, {.bits = 4, .rule = QuantRule::whole_zero});
  EXPECT_EQ(back[1], 0.0f);
}

/// llama.cpp's quantize_row_q4_0 takes the scale, with its sign, from the first number of the largest magnitude.
TEST(Quantize, TheFirstOfEquallyLargeNumbersGivesTheScaleItsSign) {
  const QuantFormat q4{.bits = 4, .meta = DType::f16, .rule = QuantRule::ggml_signed, .first_level = -8};
  for (const float first : {4.0f, -4.0f}) {
    GroupMeta meta;
    EXPECT_EQ(codes_of({0, first, -first, 0}, q4, &meta), (std::vector<int>{8, 0, 15, 8}));
    EXPECT_EQ(meta.scale, first / -8);
  }
}

TEST(Quantize, EightBitFloatsAreThoseOfTheStandard) {
  const QuantFormat e4m3{.bits = 8, .rule = QuantRule::none, .levels = Levels::e4m3};
  const QuantFormat e5m2{.bits = 8, .rule = QuantRule::none, .levels = Levels::e5m2};
  EXPECT_EQ(level_of(e4m3, 0x7e), 448.0f);
  EXPECT_EQ(level_of(e4m3, 0x38), 1.0f);
  EXPECT_EQ(level_of(e4m3, 0x01), 0x1p-9f);
  EXPECT_EQ(level_of(e5m2, 0x7b), 57344.0f);
  EXPECT_EQ(level_of(e5m2, 0x01), 0x1p-16f);
  for (const QuantFormat& format : {e4m3, e5m2}) {
    for (uint32_t code = 0; code < 256; ++code) {  // every finite number comes back
      const float x = level_of(format, code);
      if (!std::isfinite(x)) continue;
      EXPECT_EQ(decoded({x}, format)[0], x) << code;
    }
  }
  // 17 lies between 16 and 18, 19 between 18 and 20 (ties to even mantissas); beyond the largest it saturates.
  EXPECT_EQ(decoded({17, 19, -1000, 1e9f, 0x1p-10f, 0x1.8p-9f}, e4m3),
            (std::vector<float>{16, 20, -448, 448, 0, 0x1p-8f}));
}

/// Codes of e2m1: magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 are 0 to 7, their negatives 8 to 15.
TEST(Quantize, FourBitFloatsRoundTiesToTheEvenCode) {
  const QuantFormat mx{.bits = 4, .rule = QuantRule::mx, .levels = Levels::codebook, .codebook = kLevelsE2M1};
  GroupMeta meta;
  EXPECT_EQ(codes_of({4, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, -5, -0.25f, -0.75f, 7.9f}, mx, &meta),
            (std::vector<int>{6, 0, 2, 2, 4, 4, 6, 6, 14, 8, 10, 7}));
  EXPECT_EQ(meta.scale, 1.0f);
  (void)codes_of({0.124f, 0}, mx, &meta);
  EXPECT_EQ(meta.scale, 0x1p-6f);  // 2^-4 over 4
  (void)codes_of({0, 0}, mx, &meta);
  EXPECT_EQ(meta.scale, 0x1p-126f);
  QuantFormat nv = mx;
  nv.rule = QuantRule::nv;
  EXPECT_EQ(codes_of({-6.3f, 3.15f, 0}, nv, &meta), (std::vector<int>{15, 5, 0}));
  EXPECT_EQ(meta.scale, 1.0f);  // 1.05 lies between 1 and 1.125
  EXPECT_EQ(codes_of({0x1p-9f, 0}, nv, &meta), (std::vector<int>{0, 0}));
  EXPECT_EQ(meta.scale, 0.0f);  // a sixth of it is below half of the smallest scale
}

TEST(Quantize, ANormKeepsTheGroupsLength) {
  static constexpr float kLevels[] = {-1.510418f, -0.452780f, 0.452780f, 1.510418f};
  const std::vector<float> x = normal(64, 5), seven = [&] {
    std::vector<float> scaled = x;
    for (float& v : scaled) v *= 8;
    return scaled;
  }();
  const QuantFormat format{.bits = 2, .rule = QuantRule::norm, .levels = Levels::codebook, .codebook = kLevels};
  double want = 0, got = 0;
  for (const float v : x) want += static_cast<double>(v) * v;
  for (const float v : decoded(x, format)) got += static_cast<double>(v) * v;
  EXPECT_NEAR(std::sqrt(got / want), 1, 0x1p-8);  // the scale is rounded to bf16
  EXPECT_EQ(codes_of(x, format), codes_of(seven, format));
  for (const float v : decoded(std::vector<float>(16, 0.0f), format)) EXPECT_EQ(v, 0.0f);
}

TEST(Quantize, GivenScalesEncodeAnyNumberOfEntries) {
  PackedMemory keys(CellKind::keys, {.bits = 4, .group_size = kWholeRun, .rule = QuantRule::given}, 32, 40);
  for (auto& s : keys.scale) s = f32_to_bf16(0.5f);
  for (auto& z : keys.zero) z = f32_to_bf16(-4);
  const std::vector<float> rows = normal(40 * 32, 6);
  encode_rows(keys.view, 0, 23, rows.data(), 32);
  encode_rows(keys.view, 23, 17, rows.data() + 23 * 32, 32);
  std::vector<float> back(rows.size());
  decode_rows(keys.view, 0, 40, back.data(), 32);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(back[i], std::clamp(rows[i], -4.0f, 3.5f), 0.25f);
}

TEST(Quantize, DecodedCellsHaveTheBitsOfDecodedRowsOnEveryPath) {
  static const std::vector<float> levels{-2.5f, -1, -0.25f, 0.25f, 1, 1.5f, 2, 3};
  static const std::vector<float> many = [] {
    std::vector<float> sorted = normal(256, 9);
    std::ranges::sort(sorted);
    return sorted;
  }();
  const std::vector<QuantFormat> formats{
      {.bits = 5},
      {.bits = 3, .meta = DType::f16, .rule = QuantRule::whole_zero, .token_groups = true},
      {.bits = 3, .rule = QuantRule::norm, .levels = Levels::codebook, .codebook = levels.data(), .token_groups = true},
      {.bits = 8, .group_size = 16, .rule = QuantRule::absmax, .first_level = -128, .token_groups = true},
      {.bits = 8, .rule = QuantRule::none, .levels = Levels::codebook, .codebook = many.data(), .token_groups = true},
      {.bits = 8, .rule = QuantRule::none, .levels = Levels::e4m3, .token_groups = true},
      {.bits = 8, .rule = QuantRule::none, .levels = Levels::e5m2, .token_groups = true},
      {.bits = 4, .rule = QuantRule::mx, .levels = Levels::codebook, .codebook = kLevelsE2M1, .token_groups = true},
      {.bits = 4, .rule = QuantRule::nv, .levels = Levels::codebook, .codebook = kLevelsE2M1, .token_groups = true}};
  for (QuantFormat format : formats) {
    for (const int64_t head_dim : {64, 80}) {
      if (head_dim == 80) format.group_size = 16;
      for (const CellKind kind : {CellKind::keys, CellKind::values}) {
        PackedMemory packed(kind, format, head_dim, 96);
        const std::vector<float> rows = normal(96 * head_dim, 8);
        encode_rows(packed.view, 0, 96, rows.data(), head_dim);
        std::vector<float> want(rows.size()), got(static_cast<size_t>(64 * head_dim));
        decode_rows(packed.view, 0, 96, want.data(), head_dim);
        for (const CpuPath path : available_cpu_paths()) {
          const ScopedCpuPath forced(path);
          decode_cells(packed.view, 1, 4, got.data());
          for (int64_t e = 0; e < 64; ++e) {
            for (int64_t c = 0; c < head_dim; ++c) {
              ASSERT_EQ(got[static_cast<size_t>(cell_offset(kind, head_dim, e, c))],
                        want[static_cast<size_t>((16 + e) * head_dim + c)])
                  << name_of(path) << " bits " << format.bits << " entry " << e << " channel " << c;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvarena::kernels
