// FastGen: by hand, and what the sets without token classes keep, restated in float64
// (tests/golden/dropping_methods.py).

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/observed_layer.h"

namespace kvarena {
namespace {

using testing::ObservedLayer;

/// One head over ten entries with these sums of attention; tokens 1 are special, 2 punctuation.
std::vector<int32_t> fastgen_keeps(const std::vector<float>& mass, double recovery) {
  ObservedLayer layer(std::vector<float>(20, 1.0F), 1, 10);
  layer.facts.text.token_class = {TokenClass::plain, TokenClass::special, TokenClass::punctuation};
  const std::vector<int32_t> tokens = {1, 0, 0, 0, 0, 1, 2, 0, 0, 0};
  layer.context.prompt = tokens;
  for (const float share : mass) layer.seen.prompt_attention.push_back(10 * share);
  return layer.kept({{"name", "fastgen"}, {"recovery", recovery}, {"frequent", 0.2}, {"local", 0.1}});
}

TEST(FastGen, AHeadTakesTheFirstSetThatHoldsEnough) {
  EXPECT_EQ(fastgen_keeps({.5F, 0, 0, 0, 0, .47F, 0, 0, .03F, 0}, 0.9), (std::vector<int32_t>{0, 1, 2, 3, 5}));
  EXPECT_EQ(fastgen_keeps({.5F, 0, 0, 0, 0, .2F, .27F, 0, .03F, 0}, 0.9), (std::vector<int32_t>{0, 1, 2, 3, 5, 6}));
  EXPECT_EQ(fastgen_keeps({.5F, 0, 0, 0, 0, .2F, .1F, .05F, .15F, 0}, 0.9),
            (std::vector<int32_t>{0, 1, 2, 3, 5, 6, 7, 8}));
  EXPECT_EQ(fastgen_keeps({.5F, 0, 0, 0, .1F, .1F, 0, .1F, .05F, .15F}, 0.9).size(), 10U);
  EXPECT_EQ(fastgen_keeps({.5F, 0, 0, 0, 0, .47F, 0, 0, .03F, 0}, 1.1).size(), 10U);
}

TEST(FastGen, AGeneratedQueryAddsItsGroupsMeanAttention) {
  KvCache cache(1, {.q_heads = 2, .kv_heads = 1, .head_dim = testing::kObservedDim, .dtype = DType::f32});
  const std::vector<float> rows(3 * testing::kObservedDim, 1.0F);
  cache.layers[0].append(rows.data(), rows.data(), 3, testing::kObservedDim, 0);
  cache.layers[0].tail().reserve_scores(2);
  const ModelFacts facts;
  const StepAttention step{.entries = &cache.layers[0].tail(),
                           .attention = {{0.5F, 0, 0.5F}, {0.25F, 0.5F, 0.25F}},
                           .lse = {},
                           .model = &facts};
  const auto method = make_method({{"name", "fastgen"}}, "test");
  const std::unique_ptr<Scorer> scorer = dynamic_cast<DroppingMethod&>(*method).take_scorer();
  for (int i = 0; i < 2; ++i) scorer->observe(step);
  const std::span<const float> memory = cache.layers[0].tail().entry_scores(0);  // a class and a sum an entry
  EXPECT_EQ(memory[1], 0.75F);
  EXPECT_EQ(memory[3], 0.5F);
  EXPECT_EQ(memory[5], 0.75F);
}

TEST(FastGen, KeepsWhatTheRestatedSetsKeep) { testing::expect_golden_entries("fastgen", 3); }

}  // namespace
}  // namespace kvarena
