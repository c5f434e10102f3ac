// EigenAttention: caches and logits of the authors' code on directions fitted here (tests/golden/eigenattention.py),
// the errors by which ranks are chosen, and what is counted.

#include <fmt/format.h>

#include "harness/engine/fit.h"
#include "harness/engine/model_facts.h"
#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/restored_numbers.h"
#include "tests/support/decoding.h"
#include "tests/support/temporary_folder.h"

namespace kvarena {
namespace {

using nlohmann::json;

class EigenAttentionTest : public ::testing::Test {
 protected:
  EigenAttentionTest()
      : model_(testing::tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32})),
        facts_(model_facts(model_)),
        golden_(testing::golden("eigenattention.json")) {
    Progress quiet({.style = ProgressOptions::Style::quiet});
    const FitTask task{.texts = golden_["texts"].get<std::vector<std::vector<int32_t>>>(),
                       .output = folder_ / "eigenattention.safetensors"};
    fitted_ = fit(model_, facts_, *make_method({{"name", "eigenattention"}}, "golden")->fitter(), task, quiet);
  }

  [[nodiscard]] json spec(json settings) const {
    settings["weights"] = fitted_.place;
    return settings;
  }
  [[nodiscard]] Prefill read(const json& prompt) {
    return prefill(model_, prompt["tokens"].get<std::vector<int32_t>>(), {}, kPrefillChunk, facts_);
  }
  [[nodiscard]] KvCache compressed(const Prefill& start, const json& settings) const {
    Activity activity;
    return compress_prompt(start, *make_method(spec(settings), "golden"), activity);
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
  json golden_;
  testing::TemporaryFolder folder_;
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
      const KvCache cache = compressed(start, one["spec"]);
      for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
        const Segment& segment = *cache.layers[layer].segments().front();
        EXPECT_EQ(segment.entries(0), std::ssize(start.tokens));
        testing::expect_restored(segment, one["keys"][layer], one["values"][layer]);
      }
      auto forced = prompt["forced"].get<std::vector<int32_t>>();
      forced.push_back(0);  // whose logits are those after the token before
      const testing::Decoded decoded =
          testing::decode(model_, start, spec(one["spec"]), std::ssize(forced), {.forced = forced});
      // Attention of this model is sharp: rounding latents to f16 moves the authors' logits by up to 0.1.
      testing::expect_near(decoded.logits.back(), one["logits"], 0.1, "token ");
    }
  }
}

TEST_F(EigenAttentionTest, CountsTheLatentsOfEachLayersRanks) {
  const json& prompt = golden_["prompts"][0];
  for (const json& one : prompt["cases"]) {
    int64_t numbers = 0;  // of an entry in all layers and heads
    for (const json& ranks : one["ranks"]) numbers += ranks[0].get<int64_t>() + ranks[1].get<int64_t>();
    EXPECT_EQ(compressed(read(prompt), one["spec"]).bytes(), numbers * 100 * 2) << one["spec"];
  }
}

}  // namespace
}  // namespace kvarena
