#include "harness/evaluate/model_evaluator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/evaluate/file_hashes.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena::evaluate {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class ModelEvaluatorTest : public ::testing::Test {
 protected:
  ModelEvaluatorTest() { testing::write_tiny_model(model_, 3); }

  [[nodiscard]] experiment::ExperimentConfig config() const {
    const json text = {{"name", "tiny"},
                       {"models", {{{"name", "tiny"}, {"path", model_.string()}}}},
                       {"workloads", {{{"name", "fact_qa"}, {"things", 1}, {"filler", 0}, {"samples", 1}}}},
                       {"methods", {"full"}},
                       {"engine", {{"max_new_tokens", 4}}}};
    return experiment::parse_config(text.dump(), "tiny.json", {}, registry_validators());
  }

  /// The model's hash on the protocol card, and the files behind it.
  [[nodiscard]] std::pair<std::string, std::set<std::string>> identity() const {
    const experiment::ExperimentConfig tiny = config();
    ModelEvaluator evaluator(tiny, {.home = folder_.path(), .data_dir = {}, .hardware = {}});
    const json card = json::parse(evaluator.protocol_card(tiny.models.front(), tiny.workloads.front(),
                                                          tiny.methods.front(), results::CellKind::quality));
    std::set<std::string> names;
    for (const results::RunInput& input : evaluator.inputs(tiny.models.front())) {
      if (input.kind == "model") names.insert(input.name);
    }
    return {card.at("model_sha256"), names};
  }

  testing::TemporaryFolder folder_;
  fs::path model_ = folder_ / "tiny";
};

TEST_F(ModelEvaluatorTest, EveryFileThatDecidesAModelsNumbersIsPartOfItsIdentity) {
  write_file(model_ / "generation_config.json", R"({"eos_token_id": 2})");
  write_file(model_ / "tokenizer_config.json", "{}");
  write_file(model_ / "notes.txt", "of no consequence");
  const auto [hash, files] = identity();
  const std::set<std::string> expected = {"config.json", "generation_config.json", "model.safetensors",
                                          "tokenizer.json", "tokenizer_config.json"};
  EXPECT_EQ(files, expected);
  for (const std::string& name : expected) {
    if (name == "model.safetensors") continue;
    const std::string text = read_file(model_ / name);
    json changed = json::parse(text);
    changed[name == "config.json" ? "rope_theta" : "a_note"] = 500.0;
    write_file(model_ / name, changed.dump());
    EXPECT_NE(identity().first, hash) << name;
    write_file(model_ / name, text);
  }
  write_file(model_ / "notes.txt", "changed");
  EXPECT_EQ(identity().first, hash);
}

TEST_F(ModelEvaluatorTest, AModelThatCannotBeOpenedIsAnErrorAndLeavesNothingBehind) {
  const experiment::ExperimentConfig tiny = config();
  ModelEvaluator evaluator(tiny, {.home = folder_.path(), .data_dir = {}, .hardware = {}});
  fs::remove_all(model_);
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THROW(evaluator.begin_model(tiny.models.front(), tiny.engine), UserError);
    EXPECT_EQ(evaluator.lost(), "");
  }
}

TEST(FileHashes, AFileThatWasReplacedIsHashedAgainThoughItsDateIsOld) {
  const testing::TemporaryFolder folder;
  write_file(folder / "w", "weights A");
  FileHashes hashes(folder / "hashes.json");
  EXPECT_EQ(hashes.of(folder / "w"), sha256("weights A"));
  const auto date = fs::last_write_time(folder / "w");
  write_file(folder / "w", "weights B");
  fs::last_write_time(folder / "w", date);
  EXPECT_EQ(hashes.of(folder / "w"), sha256("weights B"));
  EXPECT_EQ(FileHashes(folder / "hashes.json").of(folder / "w"), sha256("weights B"));
}

TEST(FileHashes, WhatIsNoHashIsNotBelieved) {
  const testing::TemporaryFolder folder;
  write_file(folder / "w", "weights");
  EXPECT_EQ(FileHashes(folder / "hashes.json").of(folder / "w"), sha256("weights"));
  json stored = json::parse(read_file(folder / "hashes.json"));
  for (json& value : stored) value = "trust me";
  write_file(folder / "hashes.json", stored.dump());
  EXPECT_EQ(FileHashes(folder / "hashes.json").of(folder / "w"), sha256("weights"));
}

}  // namespace
}  // namespace kvarena::evaluate
