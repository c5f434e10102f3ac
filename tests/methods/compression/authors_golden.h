#pragma once
// Methods with weights on the tests' model in float32, beside what their authors' code makes of a fixture's prompts.

#include <string>
#include <vector>

#include "harness/engine/fit.h"
#include "harness/engine/model_facts.h"
#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/restored_numbers.h"
#include "tests/support/decoding.h"
#include "tests/support/temporary_folder.h"

namespace kvarena::testing {

class AuthorsGolden : public ::testing::Test {
 protected:
  /// Reads tests/golden/FILE.
  explicit AuthorsGolden(const std::string& file)
      : model_(tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32})),
        facts_(model_facts(model_)),
        golden_(golden(file)) {}

  /// A fit on the fixture's calibration texts, into the folder's `file`.
  [[nodiscard]] FittedWeights fitted_on_texts(const nlohmann::json& spec, const std::string& file) {
    Progress quiet({.style = ProgressOptions::Style::quiet});
    const FitTask task{.texts = golden_["texts"].get<std::vector<std::vector<int32_t>>>(), .output = folder_ / file};
    return fit(model_, facts_, *make_method(spec, "golden")->fitter(), task, quiet);
  }
  [[nodiscard]] Prefill read(const nlohmann::json& prompt) {
    return prefill(model_, prompt["tokens"].get<std::vector<int32_t>>(), {}, kPrefillChunk, facts_);
  }
  [[nodiscard]] static KvCache compressed(const Prefill& start, const nlohmann::json& spec) {
    Activity activity;
    return compress_prompt(start, *make_method(spec, "golden"), activity);
  }
  /// Segment number `index` of every layer has `entries` entries, with the keys and values of `expected`.
  static void expect_layers(const KvCache& cache, size_t index, int64_t entries, const nlohmann::json& expected) {
    for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
      const Segment& segment = *cache.layers[layer].segments().at(index);
      EXPECT_EQ(segment.entries(0), entries);
      expect_restored(segment, expected["keys"][layer], expected["values"][layer]);
    }
  }
  /// Logits after the prompt's forced tokens.
  void expect_logits(const Prefill& start, const nlohmann::json& spec, const nlohmann::json& prompt,
                     const nlohmann::json& expected, double tolerance) {
    auto forced = prompt["forced"].get<std::vector<int32_t>>();
    forced.push_back(0);  // whose logits are those after the token before
    const Decoded decoded = decode(model_, start, spec, std::ssize(forced), {.forced = forced});
    expect_near(decoded.logits.back(), expected, tolerance, "token ");
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
  nlohmann::json golden_;
  TemporaryFolder folder_;
};

}  // namespace kvarena::testing
