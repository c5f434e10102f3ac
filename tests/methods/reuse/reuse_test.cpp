// Methods that reuse entries: where they equal a full prefill, and what they choose.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "harness/engine/reuse/deviation.h"
#include "harness/engine/reuse/recovery.h"
#include "harness/engine/reuse/reuse_prompt.h"
#include "harness/engine/reuse/tiered_chunk_store.h"
#include "harness/method/registry.h"
#include "tests/harness/engine/reuse/support.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::entries_of;
using testing::expect_same_bits;
using testing::FullPrompt;
using testing::tiny_model;
using testing::tiny_prompt;

/// One request, its parts seen before.
ReusedPrompt run(Transformer& model, const std::vector<int32_t>& tokens, const PromptLayout& layout, const json& spec) {
  const auto method = make_method(spec, "test");
  ReuseMemory memory;
  prime(model, tokens, layout, *method->reuser(), memory);
  return reuse_prompt(model, tokens, layout, *method->reuser(), memory);
}

void expect_full(Transformer& model, const std::vector<int32_t>& tokens, const PromptLayout& layout, const json& spec) {
  SCOPED_TRACE(spec.dump());
  const FullPrompt full(model, tokens);
  const ReusedPrompt reused = run(model, tokens, layout, spec);
  EXPECT_EQ(reused.logits, full.logits);
  expect_same_bits(reused.cache, full.cache);
}

TEST(FullReuse, OfOneChunkAtTheBeginningIsFullRecomputeBitForBit) {
  Transformer model = tiny_model();
  for (const int64_t n : {2, 30, 513, 600}) {
    const std::vector<int32_t> tokens = tiny_prompt(n);
    const PromptLayout layout{.question = n - 1 - n / 10};
    expect_full(model, tokens, layout, {{"name", "full_reuse"}, {"chunk", 1024}});
    expect_full(model, tokens, layout, {{"name", "full_recompute"}});
    const ReusedPrompt reused = run(model, tokens, layout, {{"name", "full_reuse"}, {"chunk", 1024}});
    EXPECT_EQ(reused.record.reused, *layout.question);
  }
}

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

TEST(FullReuse, OfAPrefixAloneIsFullRecompute) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(80);
  expect_full(model, tokens, {.prefix = 70, .question = 70}, {{"name", "full_reuse"}, {"chunk", 16}});
}

TEST(PrefixCache, IsFullRecomputeBitForBitAndReusesWholeBlocks) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(300);
  const PromptLayout layout{.prefix = 11, .question = 280};
  for (const auto& [block, found] : {std::pair{16, 64}, {1, 75}, {64, 64}, {100, 0}}) {
    const json spec = {{"name", "prefix_cache"}, {"block", block}, {"chunk", 64}};
    expect_full(model, tokens, layout, spec);
    EXPECT_EQ(run(model, tokens, layout, spec).record.reused, found) << "the prefix and the first chunk, 75 tokens";
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

TEST(Epic, ComputesTheFirstTokensOfEveryChunkButTheFirst) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(3 * 512 + 20);
  const ReusedPrompt reused = run(model, tokens, {.question = 3 * 512}, {{"name", "epic"}, {"tokens", 16}});
  std::vector<int32_t> expected(32);
  std::iota(expected.begin(), expected.begin() + 16, 512);
  std::iota(expected.begin() + 16, expected.end(), 1024);
  EXPECT_EQ(reused.record.recomputed, expected);
  EXPECT_EQ(reused.record.reused, static_cast<int64_t>(tokens.size()) - 52);
  EXPECT_DOUBLE_EQ(reused.record.recompute_share, 52.0 / static_cast<double>(tokens.size()));
}

/// The authors' rule on full precision: computed for every token up to the check layer, a token's fresh values are a
/// full prefill's, so squared distances to the chunks' own values can be taken from two caches.
std::vector<int32_t> restated_blend(const KvCache& full, const KvCache& alone, int64_t context, double share,
                                    size_t layer) {
  const LayerShape& shape = full.layers[layer].shape();
  std::vector<std::pair<double, int32_t>> order;
  for (int64_t t = 0; t < context; ++t) {
    double distance = 0;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const std::vector<float> fresh = entries_of(full.layers[layer], head);
      const std::vector<float> stored = entries_of(alone.layers[layer], head);
      for (int64_t c = 0; c < shape.head_dim; ++c) {
        const auto at = static_cast<int64_t>(fresh.size()) / 2 + t * shape.head_dim + c;
        const auto old = static_cast<int64_t>(stored.size()) / 2 + t * shape.head_dim + c;
        distance += std::pow(double{fresh[at]} - double{stored[old]}, 2);
      }
    }
    order.emplace_back(-distance, static_cast<int32_t>(t));
  }
  std::ranges::sort(order);
  std::vector<int32_t> chosen;
  for (int64_t i = 0; i < static_cast<int64_t>(share * static_cast<double>(context)); ++i) {
    chosen.push_back(order[i].second);
  }
  std::ranges::sort(chosen);
  return chosen;
}

TEST(CacheBlend, ChoosesByTheAuthorsRule) {
  Transformer model = tiny_model(1, {.cache = kernels::DType::f32});
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const std::vector<int32_t> tokens = tiny_prompt(150, seed);
    const PromptLayout layout{.question = 141};
    const FullPrompt full(model, tokens);
    KvCache alone = model.make_cache();
    for (const int64_t begin : {0, 48, 96}) {
      const auto own = std::span(tokens).subspan(begin, std::min<int64_t>(48, 141 - begin));
      append_recovered(model, *compute_chunk(model, own), alone);
    }
    for (const double share : {0.1, 0.15, 0.5}) {
      const ReusedPrompt reused =
          run(model, tokens, layout, {{"name", "cacheblend"}, {"recompute", share}, {"chunk", 48}});
      EXPECT_EQ(reused.record.recomputed, restated_blend(full.cache, alone, 141, share, 1))
          << "seed " << seed << " share " << share;
      // Two layers in full and the third for the chosen and the question.
      const double rows = 150 + 150 + static_cast<double>(reused.record.recomputed.size()) + 9;
      EXPECT_DOUBLE_EQ(reused.record.recompute_share,
                       (rows - (141 - static_cast<double>(reused.record.recomputed.size()))) / 450.0);
    }
  }
}

TEST(CacheBlend, TokensOfATrueBeginningNeverDeviate) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(200);
  const ReusedPrompt reused = run(model, tokens, {.question = 192}, {{"name", "cacheblend"}, {"chunk", 64}});
  ASSERT_EQ(reused.record.recomputed.size(), 28U);
  EXPECT_GE(reused.record.recomputed.front(), 64) << "the first chunk's entries are exact";
}

TEST(CacheBlend, NarrowsStepByStepAlongItsSchedule) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(210);
  const PromptLayout layout{.question = 200};
  const json spec = {
      {"name", "cacheblend"}, {"check_layers", {0, 1, 2}}, {"schedule", {0.6, 0.3}}, {"recompute", 0.1}, {"chunk", 50}};
  const ReusedPrompt reused = run(model, tokens, layout, spec);
  EXPECT_EQ(reused.record.recomputed.size(), 20U);
  EXPECT_DOUBLE_EQ(reused.record.recompute_share, (120 + 60 + 20 + 3 * 10) / 630.0);
}

TEST(CacheBlend, SchedulesThatDoNotFitAreRefused) {
  const auto problems = [](const json& spec) { return check_method(spec, "here"); };
  EXPECT_TRUE(problems({{"name", "cacheblend"}, {"check_layers", {1, 3}}, {"schedule", {0.5}}}).empty());
  for (const json& wrong : {json{{"name", "cacheblend"}, {"check_layers", {3, 1}}, {"schedule", {0.5}}},
                            json{{"name", "cacheblend"}, {"check_layers", json::array()}},
                            json{{"name", "cacheblend"}, {"check_layers", {1, 3}}},
                            json{{"name", "cacheblend"}, {"check_layers", {1, 3}}, {"schedule", {0.1}}}}) {
    const std::vector<std::string> found = problems(wrong);
    ASSERT_EQ(found.size(), 1U) << wrong;
    EXPECT_EQ(found[0].rfind("here.", 0), 0U) << found[0];
  }
}

TEST(SpecCache, BudgetsHold) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(400);
  const auto chosen = [&](const json& more) {
    json spec = {{"name", "speccache"}, {"recompute", 0.2}, {"tau_smooth", 0.9}, {"tau_cover", 0.3}, {"chunk", 64}};
    spec.update(more);
    return run(model, tokens, {}, spec).record.recomputed;
  };
  const std::vector<int32_t> plain = chosen({{"tau_cover", 1.1}});
  EXPECT_LE(plain.size(), 80U);
  EXPECT_GE(plain.size(), 79U) << "the question may be one of them";
  const std::vector<int32_t> completed = chosen(json::object());
  EXPECT_GT(completed.size(), plain.size());
  EXPECT_TRUE(std::ranges::includes(completed, plain));
  EXPECT_LE(chosen({{"hold_ratio", true}}).size(), 80U);
  EXPECT_LE(chosen({{"max_factor", 1.25}}).size(), 100U);
  EXPECT_EQ(chosen({{"max_factor", 1.0}}), plain) << "the largest are those it started from";
}

TEST(SpecCache, TheTargetItselfOrItsFirstLayersMayRead) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(300);
  std::set<std::vector<int32_t>> choices;
  for (const char* layers : {"last_third", "last_two_thirds", "all", "final"}) {
    for (const double share : {0.3, 1.0}) {
      choices.insert(
          run(model, tokens, {}, {{"name", "speccache"}, {"layers", layers}, {"model_layers", share}, {"chunk", 64}})
              .record.recomputed);
    }
  }
  EXPECT_GE(choices.size(), 4U) << "what is read decides";
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
