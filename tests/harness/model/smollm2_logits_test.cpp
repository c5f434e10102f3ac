// Logits of the default model against the transformers library (tests/golden/smollm2_logits.py).

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/core/files.h"
#include "harness/model/open_model.h"
#include "harness/model/transformer.h"
#include "tests/support/default_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::default_model;

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(default_model())) GTEST_SKIP() << default_model() << " is absent: run scripts/setup";
    golden_ = json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/smollm2_logits.json"));
    opened_.emplace(open_model(default_model()));
    model_.emplace(opened_->config, *opened_->checkpoint,
                   TransformerOptions{.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  }

  json golden_;
  std::optional<OpenedModel> opened_;
  std::optional<Transformer> model_;
};

void expect_row(std::span<const float> logits, const json& row) {
  for (size_t i = 0; i < row["ids"].size(); ++i) {
    EXPECT_NEAR(logits[row["ids"][i].get<size_t>()], row["logits"][i].get<float>(), 1e-3)
        << "position " << row["position"] << " id " << row["ids"][i];
  }
}

TEST_F(SmolLm2, PrefillAgreesWithTransformers) {
  for (const json& c : golden_["cases"]) {
    const auto tokens = c["tokens"].get<std::vector<int32_t>>();
    KvCache cache = model_->make_cache();
    const SequencePass pass{.tokens = tokens, .cache = &cache, .hooks = nullptr, .logits = LogitsRows::all};
    const std::span<const float> logits = model_->forward({&pass, 1});
    for (const json& row : c["rows"]) expect_row(logits.subspan(row["position"].get<size_t>() * 49152, 49152), row);
  }
}

TEST_F(SmolLm2, StepByStepAgreesWithTransformers) {
  const json& c = golden_["cases"][1];
  const auto tokens = c["tokens"].get<std::vector<int32_t>>();
  KvCache cache = model_->make_cache();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const SequencePass pass{.tokens = std::span(tokens).subspan(i, 1), .cache = &cache};
    const std::span<const float> logits = model_->forward({&pass, 1});
    for (const json& row : c["rows"]) {
      if (row["position"] == i) expect_row(logits, row);
    }
  }
}

}  // namespace
}  // namespace kvarena
