// Palu: caches and logits of the authors' code on directions fitted here (tests/golden/palu.py), and what is counted.

#include "harness/core/error.h"
#include "harness/engine/fit.h"
#include "harness/engine/model_facts.h"
#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/restored_numbers.h"
#include "tests/support/decoding.h"
#include "tests/support/temporary_folder.h"

namespace kvarena {
namespace {

using nlohmann::json;

class PaluTest : public ::testing::Test {
 protected:
  PaluTest()
      : model_(testing::tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32})),
        facts_(model_facts(model_)),
        golden_(testing::golden("palu.json")) {}

  /// The settings with the file of a fit on the fixture's calibration texts.
  [[nodiscard]] json fitted(json spec) {
    const std::filesystem::path file = folder_ / "palu.safetensors";
    Progress quiet({.style = ProgressOptions::Style::quiet});
    const FitTask task{.texts = golden_["texts"].get<std::vector<std::vector<int32_t>>>(), .output = file};
    (void)fit(model_, facts_, *make_method(spec, "golden")->fitter(), task, quiet);
    spec["weights"] = file.string();
    return spec;
  }
  [[nodiscard]] Prefill read(const json& prompt) {
    return prefill(model_, prompt["tokens"].get<std::vector<int32_t>>(), {}, kPrefillChunk, facts_);
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
  json golden_;
  testing::TemporaryFolder folder_;
};

TEST_F(PaluTest, RestoresAndAttendsAsTheAuthorsCode) {
  ASSERT_EQ(golden_["prompts"].size(), 5U);
  for (size_t index = 0; index < 4; ++index) {
    json spec;
    for (const json& prompt : golden_["prompts"]) {
      const json& one = prompt["cases"].at(index);
      SCOPED_TRACE(one["spec"].dump());
      if (spec.is_null()) spec = fitted(one["spec"]);
      const Prefill start = read(prompt);
      Activity activity;
      const KvCache cache = compress_prompt(start, *make_method(spec, "golden"), activity);
      for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
        const Segment& segment = *cache.layers[layer].segments().front();
        EXPECT_EQ(segment.entries(0), std::ssize(start.tokens));
        testing::expect_restored(segment, one["keys"][layer], one["values"][layer]);
      }
      auto forced = prompt["forced"].get<std::vector<int32_t>>();
      forced.push_back(0);  // whose logits are those after the token before
      const testing::Decoded decoded = testing::decode(model_, start, spec, std::ssize(forced), {.forced = forced});
      // Attention of this model is sharp: rounding latents to f16 moves the authors' logits by up to 0.08.
      testing::expect_near(decoded.logits.back(), one["logits"], 0.1, "token ");
    }
  }
}

TEST_F(PaluTest, CountsLatentsAlone) {
  const json spec = fitted({{"name", "palu"}, {"share", 0.5}, {"head_group", 1}, {"round_to", 8}});
  Activity activity;
  const KvCache cache = compress_prompt(read(golden_["prompts"][0]), *make_method(spec, "test"), activity);
  EXPECT_EQ(cache.bytes(), 3 * 2 * 100 * (16 + 16) * 2);  // layers, heads, entries, ranks of both sides, f16
  EXPECT_EQ(activity.entries_packed, 3 * 2 * 100);
}

TEST_F(PaluTest, RefusesAGroupThatDoesNotDivideTheHeads) {
  const ModelConfig config = [] {
    ModelConfig three = testing::tiny_config();
    three.q_heads = 6;
    three.kv_heads = 3;
    return three;
  }();
  Transformer model = testing::tiny_model(1, {}, config);
  const Prefill start = prefill(model, testing::tiny_prompt(40), {}, kPrefillChunk, model_facts(model));
  Activity activity;
  EXPECT_THROW((void)compress_prompt(start, *make_method({{"name", "palu"}, {"head_group", 2}}, "test"), activity),
               UserError);
}

}  // namespace
}  // namespace kvarena
