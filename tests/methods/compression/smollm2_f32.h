#pragma once
// The default model in f32, for goldens that were made with its weights.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "harness/core/files.h"
#include "harness/model/open_model.h"
#include "harness/model/transformer.h"
#include "tests/support/default_model.h"

namespace kvarena::testing {

class SmolLm2F32 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(default_model())) GTEST_SKIP() << default_model() << " is absent: run scripts/setup";
    opened_ = open_model(default_model());
    model_.emplace(opened_->config, *opened_->checkpoint,
                   TransformerOptions{.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  }

  static nlohmann::json golden(const std::string& name) {
    return nlohmann::json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/" + name));
  }

  /// Digest of positions, as the scripts write it.
  static std::string digest(const nlohmann::json& positions) { return sha256(positions.dump()).substr(0, 10); }

  std::optional<OpenedModel> opened_;
  std::optional<Transformer> model_;
};

}  // namespace kvarena::testing
