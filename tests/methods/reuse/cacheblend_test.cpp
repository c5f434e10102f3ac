// CacheBlend: the tokens that its authors' attention chooses and the logits in float64 (tests/golden/reuse_methods.py),
// the rule restated over two whole caches, and schedules.

#include <algorithm>
#include <cmath>

#include "harness/engine/reuse/recovery.h"
#include "tests/methods/reuse/reused_prompt.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::entries_of;
using testing::FullPrompt;
using testing::run;
using testing::tiny_model;
using testing::tiny_prompt;

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

TEST(CacheBlend, ComputesAndPredictsAsTheReference) { testing::expect_golden_reuse("cacheblend", 9); }

}  // namespace
}  // namespace kvarena
