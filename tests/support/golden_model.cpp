#include "tests/support/golden_model.h"

#include <unistd.h>

#include <algorithm>

#include "harness/core/files.h"

namespace kvarena::testing {

TensorShapes GoldenModel::shapes() const {
  TensorShapes list;
  for (const auto& [tensor, shape] : fixture["tensors"].items()) {
    list.emplace_back(tensor, shape.get<std::vector<int64_t>>());
  }
  return list;
}

std::filesystem::path golden_architectures() {
  return std::filesystem::path(KVARENA_SOURCE_DIR) / "tests/golden/architectures";
}

GoldenModel golden_model(const std::string& name) {
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

std::vector<std::string> golden_model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_architectures())) {
    names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace kvarena::testing
