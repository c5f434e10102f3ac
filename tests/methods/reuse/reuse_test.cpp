// Requirements on all methods that reuse entries, and how far their caches are from a full prefill's.

#include "harness/engine/reuse/deviation.h"
#include "harness/engine/reuse/tiered_chunk_store.h"
#include "tests/methods/reuse/reused_prompt.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::entries_of;
using testing::expect_full;
using testing::expect_same_bits;
using testing::FullPrompt;
using testing::run;
using testing::tiny_model;
using testing::tiny_prompt;

/// The tier of chunks decides when their entries arrive, not their bits.
TEST(Reuse, ChunksOnATierGiveTheSameCache) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(300);
  std::vector<storage::TierSettings> behind(1);  // host memory
  behind[0].link.name = "test";
  behind[0].link.bytes_per_s = 1e8;
  const auto machine = std::make_shared<const storage::Hierarchy>(behind);
  for (const json& spec : {json{{"name", "full_reuse"}}, json{{"name", "epic"}, {"tokens", 8}},
                           json{{"name", "cacheblend"}}, json{{"name", "speccache"}}}) {
    SCOPED_TRACE(spec.dump());
    json chunked = spec;
    chunked["chunk"] = 64;
    const auto method = make_method(chunked, "test");
    ReuseMemory memory{.chunks = std::make_shared<TieredChunkStore>(machine, Tier::host)};
    prime(model, tokens, {}, *method->reuser(), memory);
    const ReusedPrompt behind_link = reuse_prompt(model, tokens, {}, *method->reuser(), memory);
    const ReusedPrompt at_hand = run(model, tokens, {}, chunked);
    EXPECT_EQ(behind_link.logits, at_hand.logits);
    expect_same_bits(behind_link.cache, at_hand.cache);
  }
}

TEST(Reuse, ComputingEverythingIsFullRecomputeBitForBit) {
  Transformer model = tiny_model();
  for (const int64_t n : {3, 100, 700}) {
    const std::vector<int32_t> tokens = tiny_prompt(n);
    for (const PromptLayout& layout : {PromptLayout{}, PromptLayout{.prefix = n / 9, .question = n - n / 8}}) {
      expect_full(model, tokens, layout, {{"name", "cacheblend"}, {"recompute", 1.0}, {"chunk", 64}});
      expect_full(model, tokens, layout, {{"name", "speccache"}, {"recompute", 1.0}, {"chunk", 64}});
      expect_full(model, tokens, layout, {{"name", "epic"}, {"tokens", 64}, {"chunk", 64}});
    }
  }
}

TEST(Reuse, ComputingNothingIsFullReuse) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(260);
  const PromptLayout layout{.question = 250};
  const ReusedPrompt full = run(model, tokens, layout, {{"name", "full_reuse"}, {"chunk", 64}});
  for (const json& spec : {json{{"name", "epic"}, {"tokens", 0}, {"chunk", 64}},
                           json{{"name", "speccache"}, {"recompute", 0.0}, {"chunk", 64}}}) {
    const ReusedPrompt same = run(model, tokens, layout, spec);
    EXPECT_EQ(same.logits, full.logits);
    expect_same_bits(same.cache, full.cache);
  }
  EXPECT_NE(full.logits, FullPrompt(model, tokens).logits) << "chunks computed alone have not seen each other";
}

TEST(Reuse, ChunksMayRepeatBeShortAndStandInAnyOrder) {
  Transformer model = tiny_model();
  std::vector<int32_t> twice = tiny_prompt(64);
  twice.insert(twice.end(), twice.begin(), twice.begin() + 64);
  for (const int32_t token : {1, 2, 3, 4, 5}) twice.push_back(token);  // the last chunk has 3 tokens
  const PromptLayout layout{.question = 131};
  for (const char* name : {"full_reuse", "epic", "cacheblend", "speccache", "prefix_cache"}) {
    const ReusedPrompt reused = run(model, twice, layout, {{"name", name}, {"chunk", 64}});
    EXPECT_EQ(reused.cache.length, 133) << name;
  }
  // Another order changes full reuse through positions alone: the moved chunk's values keep their bits.
  std::vector<int32_t> ab = tiny_prompt(32, 1);
  const std::vector<int32_t> b = tiny_prompt(32, 2);
  std::vector<int32_t> ba = b;
  ba.insert(ba.end(), ab.begin(), ab.end());
  ab.insert(ab.end(), b.begin(), b.end());
  ab.push_back(9);
  ba.push_back(9);
  const json spec = {{"name", "full_reuse"}, {"chunk", 32}};
  const std::vector<float> first = entries_of(run(model, ab, {}, spec).cache.layers[2], 0);
  const std::vector<float> second = entries_of(run(model, ba, {}, spec).cache.layers[2], 0);
  const int64_t chunk = 32 * model.layer_shape(0).head_dim;
  const auto values = static_cast<int64_t>(first.size()) / 2;
  EXPECT_TRUE(std::equal(&first[values], &first[values + chunk], &second[values + chunk]));
  EXPECT_TRUE(std::equal(&first[values + chunk], &first[values + 2 * chunk], &second[values]));
}

TEST(Deviation, IsZeroForTheSameCacheAndGrowsWithDepthUnderReuse) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(200);
  const FullPrompt full(model, tokens);
  const std::vector<double> none = layer_deviations(full.cache, full.cache, 200);
  for (const double distance : none) EXPECT_NEAR(distance, 0, 1e-12);
  const ReusedPrompt reused = run(model, tokens, {}, {{"name", "full_reuse"}, {"chunk", 64}});
  const std::vector<double> some = layer_deviations(full.cache, reused.cache, 200);
  EXPECT_LT(some[0], 1e-4) << "the first layer's entries depend on tokens and positions alone";
  EXPECT_GT(some[1], 1e-3);
  EXPECT_GT(some[2], some[0]);
}

TEST(Deviation, ByHand) {
  const LayerShape shape{.q_heads = 1, .kv_heads = 1, .head_dim = 16, .dtype = kernels::DType::f32};
  std::vector<float> a(16, 0.0F);
  std::vector<float> b(16, 0.0F);
  a[0] = 2;
  b[1] = 3;  // at a right angle: distance 1
  KvCache x(1, shape);
  KvCache y(1, shape);
  x.layers[0].append(a.data(), a.data(), 1, 16, 0);
  y.layers[0].append(b.data(), a.data(), 1, 16, 0);
  EXPECT_DOUBLE_EQ(layer_deviations(x, y, 1)[0], 0.5) << "keys 1, values 0";
}

}  // namespace
}  // namespace kvarena
