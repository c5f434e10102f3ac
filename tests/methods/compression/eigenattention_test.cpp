// EigenAttention: caches and logits of the authors' code on directions fitted here (tests/golden/eigenattention.py),
// the errors by which ranks are chosen, and what is counted.

#include <fmt/format.h>

#include "tests/methods/compression/authors_golden.h"

namespace kvarena {
namespace {

using nlohmann::json;

class EigenAttentionTest : public testing::AuthorsGolden {
 protected:
  EigenAttentionTest() : AuthorsGolden("eigenattention.json") {
    fitted_ = fitted_on_texts({{"name", "eigenattention"}}, "eigenattention.safetensors");
  }

  [[nodiscard]] json spec(json settings) const {
    settings["weights"] = fitted_.place;
    return settings;
  }

  FittedWeights fitted_;
};

TEST_F(EigenAttentionTest, MeasuresTheErrorsOfTheAuthorsCode) {
  for (size_t layer = 0; layer < golden_["errors"].size(); ++layer) {
    const std::vector<float>& found = fitted_.at(fmt::format("layers.{}.errors", layer), {-1}).values;
    const json& expected = golden_["errors"][layer];
    ASSERT_EQ(found.size(), expected.size());
    // At the first threshold, 1, rounding decides whether the last direction is counted.
    for (size_t i = 1; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i].get<float>(), 1e-4) << layer << ", " << i;
  }
}

TEST_F(EigenAttentionTest, RestoresAndAttendsAsTheAuthorsCode) {
  ASSERT_EQ(golden_["prompts"].size(), 5U);
  for (const json& prompt : golden_["prompts"]) {
    const Prefill start = read(prompt);
    for (const json& one : prompt["cases"]) {
      SCOPED_TRACE(one["spec"].dump());
      expect_layers(compressed(start, spec(one["spec"])), 0, std::ssize(start.tokens), one);
      // Attention of this model is sharp: rounding latents to f16 moves the authors' logits by up to 0.1.
      expect_logits(start, spec(one["spec"]), prompt, one["logits"], 0.1);
    }
  }
}

TEST_F(EigenAttentionTest, CountsTheLatentsOfEachLayersRanks) {
  const json& prompt = golden_["prompts"][0];
  for (const json& one : prompt["cases"]) {
    int64_t numbers = 0;  // of an entry in all layers and heads
    for (const json& ranks : one["ranks"]) numbers += ranks[0].get<int64_t>() + ranks[1].get<int64_t>();
    EXPECT_EQ(compressed(read(prompt), spec(one["spec"])).bytes(), numbers * 100 * 2) << one["spec"];
  }
}

}  // namespace
}  // namespace kvarena
