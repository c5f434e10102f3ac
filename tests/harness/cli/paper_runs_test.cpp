// Every config of the papers runs scaled down: the default model, one sample of each workload, cut short, a few tokens.
// What fails then is a name, a setting or a metric that does not fit, whatever the model.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/harness/cli/check.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const fs::path kPapers = fs::path(KVARENA_SOURCE_DIR) / "configs" / "papers";

std::vector<std::string> configs() {
  std::vector<std::string> found;
  for (const auto& file : fs::recursive_directory_iterator(kPapers)) {
    if (file.path().extension() == ".json" && file.path().filename() != "paper.json")
      found.push_back(file.path().lexically_relative(kPapers).string());
  }
  std::ranges::sort(found);
  return found;
}

/// Settings that the paper's index changes for a run on the default model.
std::vector<std::string> scaled_changes(const std::string& config) {
  const fs::path path = config;
  const json index = json::parse(std::ifstream(kPapers / path.parent_path() / "paper.json"));
  for (const json& item : index["items"]) {
    if (item["item"] == path.stem().string()) return item.value("scaled", std::vector<std::string>{});
  }
  return {};
}

class PaperConfig : public ::testing::TestWithParam<std::string> {};

TEST_P(PaperConfig, RunsScaledDown) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const ScratchFolder scratch;
  json config = json::parse(std::ifstream(kPapers / GetParam()));
  // Where answers are evaluated, timing runs the same sessions again, several times over.
  const bool timed_alone = std::ranges::all_of(
      config["workloads"], [](const json& entry) { return entry.is_object() && entry.contains("request_tokens"); });
  if (!timed_alone) config.erase("timing");
  std::ofstream(scratch / "config.json") << config;
  std::vector<std::string> words = {"run", "config.json", "--model", "smollm2-135m", "--limit", "1", "--quiet"};
  std::vector<std::string> changes = {"engine.max_new_tokens=3", "engine.max_prompt_tokens=384",
                                      "engine.noise_floor=0"};
  if (timed_alone) {
    for (const char* once : {"timing.repeats=1", "timing.warmup=0"}) changes.emplace_back(once);
  }
  std::ranges::move(scaled_changes(GetParam()), std::back_inserter(changes));
  for (std::string& change : changes) {
    words.emplace_back("--set");
    words.push_back(std::move(change));
  }
  const Finished finished = run_kvarena(words, {.folder = scratch.path()});
  EXPECT_EQ(finished.code, 0) << finished.err;
}

INSTANTIATE_TEST_SUITE_P(All, PaperConfig, ::testing::ValuesIn(configs()), [](const auto& info) {
  std::string name = info.param.substr(0, info.param.rfind('.'));
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace kvarena::testing
