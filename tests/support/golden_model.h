#pragma once
// The tiny models of tests/golden/architectures, one of every kind of decoder, rebuilt from their fixtures.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/model/transformer.h"
#include "tests/support/random_checkpoint.h"

namespace kvarena::testing {

struct GoldenModel {
  std::string name;
  nlohmann::json fixture;  // tests/golden/architectures.py says what is in it
  ModelConfig config;

  [[nodiscard]] TensorShapes shapes() const;
  [[nodiscard]] RandomCheckpoint checkpoint() const { return {shapes(), fixture["seed"].get<uint64_t>()}; }
  [[nodiscard]] Transformer transformer(TransformerOptions options = {}) const {
    return {config, checkpoint(), options};
  }
};

std::filesystem::path golden_architectures();

GoldenModel golden_model(const std::string& name);

/// All of them, by name.
std::vector<std::string> golden_model_names();

}  // namespace kvarena::testing
