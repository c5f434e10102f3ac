// Palu: caches and logits of the authors' code on directions fitted here (tests/golden/palu.py), and what is counted.

#include "harness/core/error.h"
#include "tests/methods/compression/authors_golden.h"

namespace kvarena {
namespace {

using nlohmann::json;

class PaluTest : public testing::AuthorsGolden {
 protected:
  PaluTest() : AuthorsGolden("palu.json") {}

  /// The settings with the file of a fit on the fixture's calibration texts.
  [[nodiscard]] json fitted(json spec) {
    spec["weights"] = fitted_on_texts(spec, "palu.safetensors").place;
    return spec;
  }
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
      expect_layers(compressed(start, spec), 0, std::ssize(start.tokens), one);
      // Attention of this model is sharp: rounding latents to f16 moves the authors' logits by up to 0.08.
      expect_logits(start, spec, prompt, one["logits"], 0.1);
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
