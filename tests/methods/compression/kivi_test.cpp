// Storage of KIVI, and attention on it, which equals attention on the decoded values.

#include <cmath>

#include "harness/core/error.h"
#include "tests/methods/compression/decoded_entries.h"
#include "tests/methods/compression/packed_layer.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::random_floats;

using Layer = testing::PackedLayer;

constexpr LayerShape kShape = testing::kCodecShape;
constexpr int64_t kRow = 2 * 64;

json kivi(int64_t bits, int64_t group = 32, int64_t residual = 128) {
  return {{"name", "kivi"}, {"bits", bits}, {"group_size", group}, {"residual_length", residual}};
}

TEST(Kivi, KeepsTheNewestKeysAndValuesAsThePaperSays) {
  struct Case {
    int64_t tokens, keys, values;
  };
  // T mod R keys; the last R values, all while there are fewer than a block of keys.
  for (const Case& c : {Case{127, 127, 127}, Case{128, 0, 128}, Case{300, 44, 128}, Case{384, 0, 128}}) {
    Layer layer(kivi(2));
    layer.prefill(c.tokens);
    EXPECT_EQ(layer.keys_in_16_bits(), c.keys) << c.tokens;
    EXPECT_EQ(layer.values_in_16_bits(), c.values) << c.tokens;
    EXPECT_EQ(layer.cache.layers[0].entries(0), c.tokens);
  }
}

TEST(Kivi, DecodingReachesTheStateOfAPromptOfThatLength) {
  Layer decoded(kivi(4, 32, 64));
  decoded.prefill(100);
  decoded.decode(157);
  Layer prompt(kivi(4, 32, 64));
  prompt.prefill(257);
  EXPECT_EQ(decoded.keys_in_16_bits(), prompt.keys_in_16_bits());
  EXPECT_EQ(decoded.values_in_16_bits(), prompt.values_in_16_bits());
}

TEST(Kivi, PositionsStayInOrderAcrossPackedAndTail) {
  Layer layer(kivi(2, 32, 32));
  layer.prefill(70);
  layer.decode(40);
  std::vector<int32_t> all;
  for (const auto& segment : layer.cache.layers[0].segments()) {
    const auto part = segment->positions(1);
    all.insert(all.end(), part.begin(), part.end());
  }
  ASSERT_EQ(all.size(), 110U);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<int32_t>(i));
}

TEST(Kivi, AllocatedBytesAreWithinTwoPercentOfTheFormula) {
  // bits/16 of 16-bit storage plus 32 bits of scale and zero a group, plus the residuals in 16 bits.
  for (const int64_t bits : {1, 2, 3, 4, 8}) {
    for (const int64_t tokens : {1024, 2048, 2000}) {
      Layer layer(kivi(bits));
      layer.prefill(tokens);
      const double entry = 64 * 2 * 2;  // one side of one token in bytes, both heads
      const double packed = (static_cast<double>(bits) + 32.0 / 32) / 16;
      const auto keys = static_cast<double>(layer.keys_in_16_bits());
      const auto values = static_cast<double>(layer.values_in_16_bits());
      const auto n = static_cast<double>(tokens);
      const double expected = entry * ((n - keys) * packed + keys + (n - values) * packed + values);
      EXPECT_NEAR(static_cast<double>(layer.cache.bytes()) / expected, 1.0, 0.02) << bits << " bits, " << tokens;
      EXPECT_EQ(layer.cache.bytes(), layer.cache.ledger->current());
    }
  }
}

TEST(Kivi, DecodedValuesLieWithinHalfAStep) {
  Layer layer(kivi(4, 32, 64));
  layer.prefill(64);
  const auto original = random_floats(64 * kRow, "keys", 1);
  std::vector<float> keys(64 * 64);
  layer.packed()->read(0, keys.data(), nullptr);
  for (int64_t group = 0; group < 2; ++group) {
    for (int64_t c = 0; c < 64; ++c) {
      float low = 2;
      float high = -2;
      for (int64_t i = group * 32; i < group * 32 + 32; ++i) {
        low = std::min(low, original[i * kRow + c]);
        high = std::max(high, original[i * kRow + c]);
      }
      // Half a step, and what bf16 makes of the entries and of scale and zero.
      const float bound = (high - low) / 15 / 2 + 0.02F;
      for (int64_t i = group * 32; i < group * 32 + 32; ++i) {
        EXPECT_NEAR(keys[i * 64 + c], original[i * kRow + c], bound);
      }
    }
  }
}

TEST(Kivi, AttentionOnPackedBitsEqualsAttentionOnDecodedValues) {
  for (const int64_t bits : {1, 2, 3, 4, 8}) {
    Layer layer(kivi(bits, 32, 64));
    layer.prefill(300);
    const auto q = random_floats(6 * 64, "q");
    const auto fused = testing::attend_one_query(layer.cache.layers[0], q).out;
    const auto plain = testing::attend_one_query(layer.decoded().layers[0], q).out;
    for (size_t i = 0; i < fused.size(); ++i) EXPECT_NEAR(fused[i], plain[i], 1e-4) << bits << " bits";
  }
}

TEST(Kivi, ImprovedOneBitReconstructsMidpoints) {
  // Halves of [0, 4]: 1 and 3 (SpeCache); the original keeps the ends 0 and 4.
  for (const auto& [style, low, high] : {std::tuple{"midpoint", 1.0F, 3.0F}, std::tuple{"minimum", 0.0F, 4.0F}}) {
    json spec = kivi(1, 32, 32);
    spec["zero_point"] = style;
    Layer layer(spec);
    std::vector<float> keys(32 * kRow, 0.0F);
    for (int64_t i = 16; i < 32; ++i) std::fill_n(&keys[i * kRow], kRow, 4.0F);
    layer.cache.layers[0].append(keys.data(), keys.data(), 32, kRow, 0);
    layer.cache.length = 32;
    LayerContext context = layer.view();
    layer.method->compress(context, {});
    std::vector<float> decoded(32 * 64);
    layer.packed()->read(0, decoded.data(), nullptr);
    EXPECT_EQ(decoded[0], low) << style;
    EXPECT_EQ(decoded[31 * 64], high) << style;
  }
}

TEST(Kivi, RefusesCombinationsThatDoNotDivide) {
  EXPECT_FALSE(check_method(kivi(6), "m").empty());
  EXPECT_FALSE(check_method(kivi(2, 24), "m").empty());
  EXPECT_FALSE(check_method(kivi(2, 32, 100), "m").empty());
  Layer layer(kivi(2, 128, 128));
  layer.append(130);
  LayerContext context = layer.view();
  try {
    layer.method->compress(context, {});
    FAIL() << "group_size 128 does not divide head_dim 64";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("head_dim 64"), std::string::npos) << error.what();
  }
}

TEST(Kivi, RefusesEntriesThatAreNotNumbers) {
  Layer layer(kivi(2, 32, 32));
  std::vector<float> keys(32 * kRow, 1.0F);
  keys[5] = std::numeric_limits<float>::infinity();
  layer.cache.layers[0].append(keys.data(), keys.data(), 32, kRow, 0);
  LayerContext context = layer.view();
  EXPECT_THROW(layer.method->compress(context, {}), UserError);
}

TEST(Kivi, DecodesAsItsFormula) { testing::expect_golden_decoded("kivi", 3); }

}  // namespace
}  // namespace kvarena
