#include <nlohmann/json.hpp>

#include "harness/experiment/config.h"
#include "harness/model/config.h"
#include "tests/fuzz/fuzz.h"

/// A run's config, and the config.json of a checkpoint.
KVARENA_FUZZ(config, data) {
  using namespace kvarena;
  const experiment::Validator any = [](const std::string&, const nlohmann::json&, const std::string&) {
    return std::vector<std::string>();
  };
  fuzz::try_to([&] {
    const auto config = experiment::parse_config(
        std::string(fuzz::text_of(data)), "config.json",
        {.models_folder = std::filesystem::path(KVARENA_SOURCE_DIR) / "configs" / "models", .overrides = {}},
        {.methods = any, .workloads = any, .metrics = any});
    (void)config.canonical_json.size();
  });
  const fuzz::BytesFile file(data);
  (void)read_hf_config(file.path());
}
