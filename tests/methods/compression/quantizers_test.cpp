// Requirements on all quantisers: entries really in few bits, and attention on the bits that equals attention on the
// numbers.

#include <cmath>
#include <cstdio>

#include "harness/core/error.h"
#include "tests/methods/compression/packed_layer.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::attend_one_query;
using testing::PackedLayer;
using testing::random_floats;

struct Case {
  json spec;
  double bits;  // an element of keys and values together, scales and zero points included
};
/// head_dim 64; published figures are for 128 where a group is a head.
std::vector<Case> cases() {
  return {{{{"name", "int8"}}, 8 + 16.0 / 64},
          {{{"name", "int8"}, {"group_size", 32}}, 8.5},
          {{{"name", "fp8"}}, 8},
          {{{"name", "fp8"}, {"format", "e5m2"}, {"scaling", "token"}}, 8.25},
          {{{"name", "fp8"}, {"scaling", "head"}}, 8 + 1.0 / 16},  // a head's scale is held channel by channel
          {{{"name", "fp4"}}, 4.5},
          {{{"name", "fp4"}, {"format", "mxfp4"}}, 4.25},
          {{{"name", "ggml_types"}}, 8.5},
          {{{"name", "ggml_types"}, {"type_k", "q4_0"}, {"type_v", "q4_0"}}, 4.5},
          {{{"name", "ggml_types"}, {"type_k", "q5_0"}, {"type_v", "iq4_nl"}, {"rotate", false}}, 5},
          {{{"name", "ggml_types"}, {"type_k", "q5_1"}, {"type_v", "q4_1"}}, 5.5},
          {{{"name", "quarot_kv"}}, 4.5},
          {{{"name", "quarot_kv"}, {"bits", 3}}, 3.5},
          {{{"name", "qserve_kv4"}, {"smooth_alpha", 0}}, 4.5},
          {{{"name", "oscar"}, {"residual_length", 32}}, 3 + 0.5 / 8},  // a length of a token's keys
          {{{"name", "kvarn"}, {"group", 32}, {"sinks", 0}}, (5.25 + 3) / 2},
          {{{"name", "polarquant"}, {"group_size", 32}}, 5},
          {{{"name", "kvtuner"}, {"bits", {8}}, {"value_bits", {4}}, {"residual_length", 32}}, 7},
          {{{"name", "kvtuner"}, {"base", "per_token"}, {"bits", {2}}}, 2.5},
          {{{"name", "turboquant"}}, 3.5 + 0.25},
          {{{"name", "turboquant"}, {"bits", 2}, {"value_bits", 2}, {"value_mode", "uniform"}}, 2 + 0.375},
          {{{"name", "turboquant"}, {"bits", 8}, {"value_bits", 4}, {"value_mode", "uniform"}}, 6.25},
          {{{"name", "turboquant"}, {"bits", 5}, {"value_bits", 1}, {"rotation", "qr"}}, 3.25}};
}

TEST(Quantizers, BitsPerElementAreThoseOfTheFormula) {
  for (const Case& c : cases()) {
    PackedLayer layer(c.spec);
    layer.prefill(1024);
    const double held = layer.cache.bytes();
    EXPECT_EQ(layer.cache.bytes(), layer.cache.ledger->current()) << c.spec;
    const double residual = static_cast<double>(layer.values_in_16_bits() - layer.keys_in_16_bits()) * 64 * 2 * 2;
    const double elements = 2 * 2 * 64 * 1024 - residual / 2;
    const double bits = 8 * (held - residual) / elements;
    EXPECT_NEAR(bits, c.bits, residual > 0 ? 0.1 : 0.01) << c.spec;
    std::printf("%-90s %.3f bits an element, formula %.3f\n", c.spec.dump().c_str(), bits, c.bits);
  }
}

TEST(Quantizers, AttentionOnPackedBitsEqualsAttentionOnDecodedEntries) {
  const auto q = random_floats(6 * 64, "q");
  for (const Case& c : cases()) {
    PackedLayer layer(c.spec);
    layer.prefill(300);
    layer.decode(7);
    const auto fused = attend_one_query(layer.cache.layers[0], q);
    const auto plain = attend_one_query(layer.decoded().layers[0], q);
    for (size_t i = 0; i < q.size(); ++i) ASSERT_NEAR(fused.out[i], plain.out[i], 1e-4) << c.spec << " " << i;
    for (size_t h = 0; h < 6; ++h) ASSERT_NEAR(fused.lse[h], plain.lse[h], 1e-4) << c.spec;
  }
}

TEST(Quantizers, DecodingStoresWhatAPromptOfThatLengthStores) {
  for (const Case& c : cases()) {
    if (c.spec.dump().find("smooth") != std::string::npos) continue;
    PackedLayer decoded(c.spec);
    PackedLayer prompt(c.spec);
    for (PackedLayer* layer : {&decoded, &prompt}) layer->append(100);
    decoded.compress();
    decoded.decode(33);
    for (int64_t i = 0; i < 33; ++i) prompt.append(1);
    prompt.compress();
    std::vector<float> a(133 * 64);
    std::vector<float> b(a.size());
    std::vector<float> c_values(a.size());
    std::vector<float> d_values(a.size());
    ASSERT_EQ(decoded.packed()->entries(1), prompt.packed()->entries(1)) << c.spec;
    decoded.packed()->read(1, a.data(), c_values.data());
    prompt.packed()->read(1, b.data(), d_values.data());
    EXPECT_EQ(a, b) << c.spec;
    EXPECT_EQ(c_values, d_values) << c.spec;
  }
}

TEST(Quantizers, RefuseEntriesThatAreNotNumbers) {
  for (const Case& c : cases()) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      PackedLayer layer(c.spec);
      std::vector<float> keys(64 * layer.row(), 1.0F);
      keys[5] = bad;
      layer.append(keys, keys, 64);
      EXPECT_THROW(layer.compress(), UserError) << c.spec;
    }
  }
}

TEST(Quantizers, ConstantAndZeroEntriesComeBackExactly) {
  for (const Case& c : cases()) {
    const std::string name = c.spec["name"];
    PackedLayer layer(c.spec);
    const std::vector<float> zero(64 * layer.row(), 0.0F);
    layer.append(zero, zero, 64);
    layer.compress();
    std::vector<float> keys(64 * 64, 7.0F);
    layer.packed()->read(1, keys.data(), nullptr);
    for (const float k : keys) ASSERT_EQ(k, 0.0F) << c.spec;
  }
}

TEST(Quantizers, BadCombinationsAreNamed) {
  const auto problem = [](const json& spec) { return check_method(spec, "m"); };
  EXPECT_FALSE(problem({{"name", "quarot_kv"}, {"bits", 6}}).empty());
  EXPECT_FALSE(problem({{"name", "kvtuner"}, {"bits", {4, 7}}}).empty());
  EXPECT_FALSE(problem({{"name", "turboquant"}, {"bits", 6}}).empty());
  EXPECT_FALSE(problem({{"name", "fp8"}, {"format", "e3m4"}}).empty());
  const auto refused = [](const json& spec, const std::string& text, int64_t head_dim = 64) {
    PackedLayer layer(spec, {.q_heads = 2, .kv_heads = 1, .head_dim = head_dim, .dtype = DType::bf16});
    layer.append(64);
    try {
      layer.compress();
      ADD_FAILURE() << spec << " was accepted";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  refused({{"name", "int8"}, {"group_size", 48}}, "head_dim 64");
  refused({{"name", "int8"}, {"group_size", 17}}, "multiple of 16");
  refused({{"name", "ggml_types"}}, "head_dim 80", 80);
  refused({{"name", "fp4"}, {"format", "mxfp4"}}, "head_dim 80", 80);
  refused({{"name", "kvtuner"}, {"bits", {4, 4}}}, "1 or 1");
  refused({{"name", "kvtuner"}, {"bits", {16}}, {"value_bits", {4}}}, "one side");
}

TEST(Codec, SinksStayExact) {
  PackedLayer layer({{"name", "ggml_types"}, {"type_k", "q4_0"}, {"type_v", "q4_0"}, {"sinks", 5}});
  layer.prefill(90);
  layer.decode(3);
  const auto original = random_floats(90 * layer.row(), "keys", 1);
  const KvCache decoded = layer.decoded();
  std::vector<float> keys(93 * 64);
  decoded.layers[0].tail().read(1, keys.data(), nullptr);
  for (int64_t t = 0; t < 5; ++t) {
    for (int64_t c = 0; c < 64; ++c) ASSERT_NEAR(keys[t * 64 + c], original[t * 128 + 64 + c], 0x1p-8);
  }
  std::vector<int32_t> all(93);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  EXPECT_EQ(layer.positions(1), all);
}

TEST(Codec, SinksBeyondThePromptWaitForTheirTokens) {
  PackedLayer layer({{"name", "ggml_types"}, {"sinks", 8}});
  layer.prefill(3);
  EXPECT_EQ(layer.packed(), nullptr);
  layer.decode(20);
  EXPECT_EQ(layer.packed()->entries(0), 15);
}

TEST(Codec, PacksWhatADroppingMethodLeaves) {
  const json over = {{"name", "knorm"}, {"keep", 0.5}};
  PackedLayer layer({{"name", "kivi"}, {"bits", 4}, {"residual_length", 32}, {"over", over}});
  layer.prefill(256);
  PackedLayer dropped(over);
  dropped.prefill(256);
  EXPECT_EQ(layer.positions(0), dropped.positions(0));
  EXPECT_EQ(layer.positions(1), dropped.positions(1));
  EXPECT_EQ(layer.packed()->entries(0), 128);
  EXPECT_LT(layer.cache.bytes() * 2, dropped.cache.bytes());
  EXPECT_EQ(layer.activity.entries_dropped, 2 * 128);
  EXPECT_EQ(layer.activity.entries_packed, 2 * 128);
  layer.decode(40);
  EXPECT_EQ(layer.cache.layers[0].entries(1), 168);
}

TEST(Codec, RefusesToPackOverWhatKeepsEvicting) {
  EXPECT_FALSE(check_method({{"name", "kivi"}, {"over", {{"name", "h2o"}, {"keep", 0.5}}}}, "m").empty());
  EXPECT_FALSE(check_method({{"name", "kivi"}, {"over", {{"name", "int8"}}}}, "m").empty());
  EXPECT_FALSE(check_method({{"name", "kivi"}, {"over", {{"name", "snapkv"}, {"keep", 2}}}}, "m").empty());
  EXPECT_TRUE(check_method({{"name", "kivi"}, {"over", {{"name", "snapkv"}, {"keep", 0.5}}}}, "m").empty());
}

}  // namespace
}  // namespace kvarena
