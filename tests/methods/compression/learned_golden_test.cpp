// Kept positions against kvpress, through the engine's own observations (tests/golden/learned_kvpress.py): the model is
// the tests' tiny one in float32, whose weights the script draws alike.

#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "harness/core/files.h"
#include "harness/engine/compressed_cache.h"
#include "harness/engine/model_facts.h"
#include "harness/method/registry.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;

/// Kept positions of [layers][kv_heads] as the script writes them.
json masks(const KvCache& cache) {
  json layers = json::array();
  for (const LayerCache& layer : cache.layers) {
    json heads = json::array();
    for (int64_t head = 0; head < layer.shape().kv_heads; ++head) {
      std::vector<int> nibbles(32, 0);
      for (const int32_t position : layer.tail().positions(head)) nibbles[position / 4] |= 1 << position % 4;
      std::string text;
      for (auto nibble = nibbles.rbegin(); nibble != nibbles.rend(); ++nibble) {
        if (*nibble != 0 || !text.empty()) text += "0123456789abcdef"[*nibble];
      }
      heads.push_back(text);
    }
    layers.push_back(heads);
  }
  return layers;
}

class LearnedGolden : public ::testing::Test {
 protected:
  LearnedGolden()
      : golden_(json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/learned_kvpress.json"))),
        model_(testing::tiny_model(1, {.weights = DType::f32, .cache = DType::f32})) {}

  /// What the method keeps of a prompt whose first `prefix` tokens the chat template wrote.
  [[nodiscard]] json kept(const std::vector<int32_t>& tokens, const json& spec, int64_t prefix) {
    const auto method = make_method(spec, "golden");
    const auto facts = model_facts(model_);
    facts->text.encode = [&](std::string_view text) {
      return golden_["instructions"][text.find("starting") == std::string_view::npos ? 0 : 1]
          .get<std::vector<int32_t>>();
    };
    facts->text.before_user.assign(tokens.begin(), tokens.begin() + prefix);
    facts->text.after_user = golden_["after_user"].get<std::vector<int32_t>>();
    const Prefill prompt = prefill(model_, tokens, method->needs(), 33, facts);
    Activity activity;
    return masks(compress_prompt(prompt, *method, activity));
  }

  /// Compares a method with the selections called `name` at every budget of every prompt.
  void expect_equal(const std::string& name, json spec, int64_t prefix = 0) {
    int64_t compared = 0;
    for (size_t number = 0; number < golden_["cases"].size(); ++number) {
      const json& one = golden_["cases"][number];
      for (const auto& [keep, selections] : one["kept"].items()) {
        if (selections[name].is_null()) continue;  // rounding decides
        spec["keep"] = std::stod(keep);
        EXPECT_EQ(kept(one["tokens"].get<std::vector<int32_t>>(), spec, prefix), selections[name])
            << name << ", prompt " << number << ", keep " << keep;
        ++compared;
      }
    }
    EXPECT_GE(compared, 13);
  }

  json golden_;
  Transformer model_;
};

TEST_F(LearnedGolden, ExpectedAttentionFromThePromptsOwnQueries) {
  expect_equal("expected_attention plain", {{"name", "expected_attention"}});
  expect_equal("expected_attention mean",
               {{"name", "expected_attention"}, {"covariance", false}, {"value_norm", false}});
  expect_equal("expected_attention wide",
               {{"name", "expected_attention"}, {"sinks", 9}, {"future", 64}, {"epsilon", 0.01}});
}

TEST_F(LearnedGolden, KvzipRepeatsThePromptInChunks) {
  json spec = {{"name", "kvzip"}, {"form", "kvpress"}, {"chunk", golden_["chunk"]}};
  expect_equal("kvzip bare global", spec);
  expect_equal("kvzip template global", spec, golden_["prefix"].get<int64_t>());
  spec["budget_rule"] = {{"name", "uniform"}};
  expect_equal("kvzip bare uniform", spec);
  expect_equal("kvzip template uniform", spec, golden_["prefix"].get<int64_t>());
}

TEST_F(LearnedGolden, KvzipPlusWeighsByOutputs) {
  expect_equal("kvzip plus global",
               {{"name", "kvzip"}, {"form", "kvpress"}, {"chunk", golden_["chunk"]}, {"plus", true}});
}

}  // namespace
}  // namespace kvarena
