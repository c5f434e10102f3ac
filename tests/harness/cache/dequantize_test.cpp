// Steps that complete decoded codes, each by itself.

#include "harness/cache/dequantize.h"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/cache/codec_side_data.h"
#include "harness/cache/pruned_key_segment.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

constexpr LayerShape kShape{.q_heads = 2, .kv_heads = 2, .head_dim = 16, .dtype = DType::f32};
constexpr int64_t kFirst = 5, kCount = 23, kEntries = 48, kRank = 3;  // the block is of entries 5 .. 27

/// A small whole number, which f16 and sums hold exactly; another for each place.
float factor(int64_t head, int64_t row, int64_t column) {
  return static_cast<float>((7 * head + 5 * row + 3 * column) % 9 - 4);
}

/// Products of the factors and nothing else: codes stand for zero.
class Products final : public CodecSideData {
 public:
  Products() {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t e = 0; e < kCount; ++e) {
        for (int64_t k = 0; k < kRank; ++k) a_[h].push_back(kernels::f32_to_f16(factor(h, e, k)));
      }
      for (int64_t k = 0; k < kRank; ++k) {
        for (int64_t c = 0; c < 16; ++c) b_[h].push_back(kernels::f32_to_f16(factor(h, c, k)));
      }
    }
  }
  void prepare(int64_t /*first*/, EntryBlock& block) override {
    std::ranges::fill(block.keys, 0.0F);
    std::ranges::fill(block.values, 0.0F);
  }
  [[nodiscard]] DequantProgram dequant_program(const PositionReader& /*positions*/) const override {
    const AddProducts products{.read = [this](int64_t, int64_t, std::vector<AddProducts::Block>& to) {
      to.push_back({.first = kFirst, .count = kCount, .rank = kRank, .a = {a_[0], a_[1]}, .b = {b_[0], b_[1]}});
    }};
    return {.keys = in_order(AddProducts(products)), .values = in_order(AddProducts(products))};
  }
  [[nodiscard]] int64_t bytes() const override { return 0; }
  [[nodiscard]] std::unique_ptr<CodecSideData> clone(const LedgerPtr& /*ledger*/) const override {
    return std::make_unique<Products>();
  }

 private:
  std::vector<uint16_t> a_[2], b_[2];
};

TEST(Dequantize, ProductsAreAddedToTheirEntriesAlone) {
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto rows = testing::random_floats(kEntries * 32, "rows");
  EntrySegment tail(kShape, ledger);
  tail.append(rows.data(), rows.data(), kEntries, 32, 0);
  const kernels::QuantFormat format{.bits = 8, .group_size = 16};
  DequantizingSegment packed(kShape, {.keys = format, .values = format}, std::make_unique<Products>(), ledger);
  packed.take(tail, kEntries);
  for (int64_t head = 0; head < 2; ++head) {
    std::vector<float> keys(kEntries * 16), values(kEntries * 16), expected(kEntries * 16);
    for (int64_t e = kFirst; e < kFirst + kCount; ++e) {
      for (int64_t c = 0; c < 16; ++c) {
        for (int64_t k = 0; k < kRank; ++k) expected[e * 16 + c] += factor(head, e - kFirst, k) * factor(head, c, k);
      }
    }
    packed.read(head, keys.data(), values.data());
    EXPECT_EQ(keys, expected);
    EXPECT_EQ(values, expected);
  }
}

/// Codes of 8 bits under one step alone.
class OneStep final : public CodecSideData {
 public:
  explicit OneStep(DequantOp step) : step_(std::move(step)) {}
  void prepare(int64_t /*first*/, EntryBlock& /*block*/) override {}
  [[nodiscard]] DequantProgram dequant_program(const PositionReader& /*positions*/) const override {
    return {.keys = {step_}, .values = {step_}};
  }
  [[nodiscard]] int64_t bytes() const override { return 0; }
  [[nodiscard]] std::unique_ptr<CodecSideData> clone(const LedgerPtr& /*ledger*/) const override {
    return std::make_unique<OneStep>(step_);
  }

 private:
  DequantOp step_;
};

/// Keys and values [entries, 32] that a segment decodes with the step, and without one.
struct Stepped {
  std::vector<float> keys, values, plain;
};
Stepped decoded_with(const DequantOp& step, int64_t entries) {
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto rows = testing::random_floats(entries * 32, "rows");
  const kernels::QuantFormat format{.bits = 8, .group_size = 16, .token_groups = true};
  const auto packed = [&](std::unique_ptr<CodecSideData> side) {
    EntrySegment tail(kShape, ledger);
    tail.append(rows.data(), rows.data(), entries, 32, 0);
    DequantizingSegment segment(kShape, {.keys = format, .values = format}, std::move(side), ledger);
    segment.take(tail, entries);
    Stepped read{std::vector<float>(static_cast<size_t>(entries * 32)), std::vector<float>(read.keys.size()), {}};
    for (int64_t head = 0; head < 2; ++head)
      segment.read(head, &read.keys[head * entries * 16], &read.values[head * entries * 16]);
    return read;
  };
  Stepped result = packed(std::make_unique<OneStep>(step));
  const ScaleChannels unchanged{.read = [] { return std::vector<kernels::RowScale>(32); }};
  result.plain = packed(std::make_unique<OneStep>(unchanged)).keys;
  return result;
}

/// More tiles than a chunk of attention holds, and a border of chunks inside a tile.
TEST(Dequantize, ChannelsAreScaledByTheirTile) {
  constexpr int64_t kTokens = kernels::kChunk + 64, kTile = 48;
  const auto factor_of = [](int64_t tile, int64_t channel) { return static_cast<float>(1 + (5 * tile + channel) % 7); };
  const ScaleTiles step{.tile = kTile, .read = [&](int64_t first, int64_t count, std::vector<kernels::RowScale>& to) {
                          for (int64_t i = first * 32; i < (first + count) * 32; ++i)
                            to.push_back({.factor = factor_of(i / 32, i % 32)});
                        }};
  const Stepped got = decoded_with(step, kTokens);
  for (int64_t i = 0; i < kTokens * 32; ++i) {
    const int64_t head = i / (kTokens * 16), token = i / 16 % kTokens, channel = head * 16 + i % 16;
    const float expected = got.plain[i] * factor_of(token / kTile, channel);
    ASSERT_EQ(got.keys[i], expected) << i;
    ASSERT_EQ(got.values[i], expected) << i;
  }
}

TEST(Dequantize, LengthsAndAnglesBecomePairs) {
  const Stepped got = decoded_with(FromPolar{}, kEntries);
  for (int64_t i = 0; i < kEntries * 32; ++i) {
    const int64_t pair = i / 16 * 16 + i % 8;
    const float length = got.plain[pair], angle = got.plain[pair + 8];
    const float expected = length * (i % 16 < 8 ? std::cos(angle) : std::sin(angle));
    ASSERT_NEAR(got.keys[i], expected, 1e-6) << i;
    ASSERT_NEAR(got.values[i], expected, 1e-6) << i;
  }
}

/// Heads of different lengths, of which one ends before the last chunk of attention begins.
TEST(Dequantize, ChannelsThatCellsLackAreZero) {
  constexpr int64_t kTokens = 2 * kernels::kChunk;
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto rows = testing::random_floats(kTokens * 32, "rows");
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    LayerShape shape = kShape;
    shape.dtype = dtype;
    EntrySegment whole(shape, ledger);
    whole.append(rows.data(), rows.data(), kTokens, 32, 0);
    const std::vector<int64_t> counts = {kTokens - 5, 100};
    for (const PrunedKeySegment::Channels& channels :
         {PrunedKeySegment::Channels{{0, 3, 4, 9, 15}, {1, 2, 3, 7, 8}}, PrunedKeySegment::Channels(2)}) {
      const PrunedKeySegment pruned(whole, counts, channels, ledger);
      for (size_t head = 0; head < counts.size(); ++head) {
        std::vector<float> expected(kTokens * 16), keys(expected), all(expected), values(expected);
        whole.read(static_cast<int64_t>(head), all.data(), nullptr);
        pruned.read(static_cast<int64_t>(head), keys.data(), values.data());
        for (int64_t e = 0; e < counts[head]; ++e) {
          for (const int32_t c : channels[head]) expected[e * 16 + c] = all[e * 16 + c];
        }
        std::fill(all.begin() + counts[head] * 16, all.end(), 0.0F);
        EXPECT_EQ(keys, expected);
        EXPECT_EQ(values, all);
      }
    }
  }
}

/// Rotary embedding turns each pair of channels by position * frequency, here the only one.
TEST(RotaryKeys, TurnAPairByItsAngle) {
  const RotaryKeys rotation({0.5});
  std::vector<float> key = {1, 0};
  rotation.redo(key.data(), {3});
  EXPECT_NEAR(key[0], std::cos(1.5), 1e-6);
  EXPECT_NEAR(key[1], std::sin(1.5), 1e-6);
  rotation.undo(key.data(), {3});
  EXPECT_NEAR(key[0], 1, 1e-6);
  EXPECT_NEAR(key[1], 0, 1e-6);
}

}  // namespace
}  // namespace kvarena
