#pragma once
// The tiny models of tests/golden/architectures, one of every kind of decoder, rebuilt from their fixtures.

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/core/files.h"
#include "harness/model/transformer.h"
#include "tests/support/random_checkpoint.h"

namespace kvarena::testing {

struct GoldenModel {
  std::string name;
  nlohmann::json fixture;  // tests/golden/architectures.py says what is in it
  ModelConfig config;

  [[nodiscard]] TensorShapes shapes() const {
    TensorShapes list;
    for (const auto& [tensor, shape] : fixture["tensors"].items()) {
      list.emplace_back(tensor, shape.get<std::vector<int64_t>>());
    }
    return list;
  }
  [[nodiscard]] RandomCheckpoint checkpoint() const { return {shapes(), fixture["seed"].get<uint64_t>()}; }
  [[nodiscard]] Transformer transformer(TransformerOptions options = {}) const {
    return {config, checkpoint(), options};
  }
};

inline std::filesystem::path golden_architectures() {
  return std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/architectures";
}

inline GoldenModel golden_model(const std::string& name) {
  GoldenModel model{.name = name,
                    .fixture = nlohmann::json::parse(read_file(golden_architectures() / (name + ".json")))};
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("kvarena-golden-" + std::to_string(::getpid()) + "-" + name);
  std::filesystem::create_directories(folder);
  write_file(folder / "config.json", model.fixture["config"].dump());
  model.config = read_hf_config(folder / "config.json");
  std::filesystem::remove_all(folder);
  return model;
}

/// All of them, by name.
inline std::vector<std::string> golden_model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_architectures())) {
    names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace kvarena::testing
