// xKV: caches and logits of the authors' code (tests/golden/xkv.py), the bytes of latents and directions, and copies.

#include "harness/engine/model_facts.h"
#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/restored_numbers.h"

namespace kvarena {
namespace {

using nlohmann::json;

TEST(XKv, RestoresAndAttendsAsTheAuthorsCode) {
  Transformer model = testing::tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  const auto facts = model_facts(model);
  const json prompts = testing::golden("xkv.json")["prompts"];
  ASSERT_EQ(prompts.size(), 5U);
  for (const json& prompt : prompts) {
    ASSERT_EQ(prompt["cases"].size(), 4U);
    const auto tokens = prompt["tokens"].get<std::vector<int32_t>>();
    const Prefill start = prefill(model, tokens, {}, kPrefillChunk, facts);
    for (const json& one : prompt["cases"]) {
      SCOPED_TRACE(one["spec"].dump());
      Activity activity;
      KvCache cache = compress_prompt(start, *make_method(one["spec"], "golden"), activity);
      for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
        const Segment& segment = *cache.layers[layer].segments().front();
        EXPECT_EQ(segment.entries(0), std::ssize(tokens));
        testing::expect_restored(segment, one["keys"][layer], one["values"][layer]);
      }
      const auto forced = prompt["forced"].get<std::vector<int32_t>>();
      testing::expect_near(testing::forced_logits(model, cache, forced), one["logits"], 2e-2, "token ");  // f16
    }
  }
}

TEST(XKv, HoldsLatentsOnceForAGroupAndDirectionsForEachLayer) {
  Transformer model = testing::tiny_model();
  const Prefill start = prefill(model, testing::tiny_prompt(320), {}, kPrefillChunk, model_facts(model));
  const int64_t width = start.cache.layers[0].shape().kv_heads * start.cache.layers[0].shape().head_dim;
  Activity activity;
  const auto method = make_method({{"name", "xkv"}, {"group", 2}, {"key_share", 0.25}, {"value_share", 0.5}}, "test");
  KvCache cache = compress_prompt(start, *method, activity);
  int64_t numbers = 0;
  for (const int64_t layers : {2, 1}) {  // of three
    const int64_t ranks = layers * width / 4 + layers * width / 2;
    numbers += ranks * (320 + layers * width);
  }
  EXPECT_EQ(cache.bytes(), 2 * numbers);
  EXPECT_EQ(cache.clone().bytes(), 2 * numbers);
  EXPECT_EQ(activity.entries_packed, 3 * 2 * 320);
}

TEST(XKv, CopiesAreTheSameEntries) {
  Transformer model = testing::tiny_model();
  const Prefill start = prefill(model, testing::tiny_prompt(100), {}, kPrefillChunk, model_facts(model));
  Activity activity;
  KvCache cache = compress_prompt(start, *make_method({{"name", "xkv"}}, "test"), activity);
  KvCache copy = cache.clone();
  EXPECT_EQ(testing::forced_logits(model, copy, {3, 5}), testing::forced_logits(model, cache, {3, 5}));
}

}  // namespace
}  // namespace kvarena
