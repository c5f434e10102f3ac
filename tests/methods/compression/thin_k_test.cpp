// ThinK: channels and logits of kvpress's press (tests/golden/thin_k.py), and the bytes that pruned channels leave
// free.

#include "harness/cache/pruned_key_segment.h"
#include "tests/methods/compression/kept_entries.h"

namespace kvarena {
namespace {

using nlohmann::json;

const PrunedKeySegment& pruned_of(const LayerCache& layer) {
  return dynamic_cast<const PrunedKeySegment&>(*layer.segments().front());
}

TEST(ThinK, PrunesAndAttendsAsKvpress) {
  Transformer model = testing::tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  const json prompts = testing::golden("thin_k.json")["prompts"];
  ASSERT_EQ(prompts.size(), 5U);
  for (const json& prompt : prompts) {
    ASSERT_EQ(prompt["cases"].size(), 4U);
    const auto forced = prompt["forced"].get<std::vector<int32_t>>();
    const Prefill start =
        prefill(model, prompt["tokens"].get<std::vector<int32_t>>(), testing::all_needs(prompt["cases"]));
    for (const json& one : prompt["cases"]) {
      SCOPED_TRACE(one["spec"].dump());
      Activity activity;
      KvCache cache = compress_prompt(start, *make_method(one["spec"], "golden"), activity);
      for (size_t layer = 0; layer < one["channels"].size(); ++layer) {
        const PrunedKeySegment& pruned = pruned_of(cache.layers[layer]);
        for (int64_t head = 0; head < 2; ++head) {
          const std::vector<int32_t> channels(pruned.channels(head).begin(), pruned.channels(head).end());
          EXPECT_EQ(channels, testing::positions_of(one["channels"][layer][head])) << "layer " << layer;
        }
      }
      const std::vector<float> logits = testing::forced_logits(model, cache, forced);
      const auto expected = one["logits"].get<std::vector<float>>();
      ASSERT_EQ(logits.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 3e-4) << "token " << i;
    }
  }
}

TEST(ThinK, HoldsNoBytesOfPrunedChannels) {
  Transformer model = testing::tiny_model();
  const Prefill start = prefill(model, testing::tiny_prompt(320), Needs{.window = 32});
  const auto bytes = [&](const json& spec) {
    Activity activity;
    return compress_prompt(start, *make_method(spec, "test"), activity).bytes();
  };
  const int64_t d = start.cache.layers[0].shape().head_dim;
  const int64_t heads = std::ssize(start.cache.layers) * start.cache.layers[0].shape().kv_heads;
  const int64_t whole = bytes({{"name", "thin_k"}, {"pruned", 0}, {"recent", 0}});
  for (const double share : {0.25, 0.5, 0.75}) {
    const auto left = static_cast<int64_t>(static_cast<double>(d) * share);
    const int64_t gone = heads * 320 * left * 2, lists = heads * (d - left) * 2;
    EXPECT_EQ(bytes({{"name", "thin_k"}, {"pruned", share}, {"recent", 0}}), whole - gone + lists) << share;
  }
}

TEST(ThinK, CopiesAreTheSameEntries) {
  Transformer model = testing::tiny_model();
  const Prefill start = prefill(model, testing::tiny_prompt(100), Needs{.window = 32});
  Activity activity;
  KvCache cache = compress_prompt(start, *make_method({{"name", "thin_k"}}, "test"), activity);
  KvCache copy = cache.clone();
  EXPECT_EQ(copy.bytes(), cache.bytes());
  EXPECT_EQ(copy.layers[1].segments().front()->positions(1), cache.layers[1].segments().front()->positions(1));
  EXPECT_EQ(testing::forced_logits(model, copy, {3, 5}), testing::forced_logits(model, cache, {3, 5}));
}

TEST(ThinK, RefusesAMethodThatActsWhileDecodingInFrontOfIt) {
  const auto problems = check_method({{"name", "thin_k"}, {"over", {{"name", "h2o"}, {"keep", 0.5}}}}, "test");
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems.front().find("over.name"), std::string::npos);
}

}  // namespace
}  // namespace kvarena
