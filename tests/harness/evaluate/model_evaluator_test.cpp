#include "harness/evaluate/model_evaluator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/engine/fitted_file.h"
#include "harness/evaluate/file_hashes.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena::evaluate {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class ModelEvaluatorTest : public ::testing::Test {
 protected:
  ModelEvaluatorTest() { testing::write_tiny_model(model_, 3); }

  [[nodiscard]] experiment::ExperimentConfig config(const json& methods = {"full"},
                                                    const json& metrics = json::array()) const {
    const json text = {{"name", "tiny"},
                       {"models", {{{"name", "tiny"}, {"path", model_.string()}}}},
                       {"workloads", {{{"name", "fact_qa"}, {"things", 1}, {"filler", 0}, {"samples", 1}}}},
                       {"methods", methods},
                       {"metrics", metrics},
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

  /// Cells of a config of these methods, by label.
  [[nodiscard]] std::map<std::string, results::CellRecord> cells(const json& methods,
                                                                 const json& metrics = json::array()) const {
    const experiment::ExperimentConfig tiny = config(methods, metrics);
    ModelEvaluator evaluator(tiny, {.home = folder_.path(), .data_dir = {}, .hardware = {}});
    std::map<std::string, results::CellRecord> cells;
    const experiment::Plan plan = experiment::make_plan(config(methods, metrics), evaluator);
    for (const experiment::PlannedCell& cell : plan.groups.front().cells) cells[cell.record.method] = cell.record;
    return cells;
  }

  /// Each file that cells of the method depend on; changing it changes the cell.
  void expect_files(const json& method, const std::map<std::string, fs::path>& files) const {
    const std::string label = method.at("label");
    const auto now = [&] { return cells({"full", method}).at(label); };
    const results::CellRecord before = now();
    const json found = json::parse(before.engine_json).value("files", json::object());
    EXPECT_EQ(found.size(), files.size()) << found.dump();
    for (const auto& [setting, file] : files) {
      EXPECT_TRUE(found.contains(label + ": " + setting)) << setting << " in " << found.dump();
      const std::string text = read_file(file);
      write_file(file, text + " ");
      EXPECT_NE(now().cell_id, before.cell_id) << setting;
      EXPECT_EQ(now().protocol_sha256, before.protocol_sha256) << "rows of one table have one card";
      write_file(file, text);
    }
    EXPECT_EQ(now().cell_id, before.cell_id);
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

TEST_F(ModelEvaluatorTest, ASampleHasAsManyAnswersAsThereAreDraws) {
  const auto answers = [&](int64_t draws) {
    experiment::ExperimentConfig drawn = config();
    drawn.engine.draws = draws;
    drawn.engine.temperature = 2;
    ModelEvaluator evaluator(drawn, {.home = folder_.path(), .data_dir = {}, .hardware = {}});
    const experiment::Plan plan = experiment::make_plan(drawn, evaluator);
    const experiment::CellGroup& group = plan.groups.front();
    std::map<std::string, std::string> said;
    evaluator.begin_model(*group.model, drawn.engine);
    for (size_t i = 0; i < group.sample_ids.size(); ++i) {
      const experiment::PlannedCell* cell = &group.cells.front();
      const auto next = static_cast<int64_t>(i + 1);
      const auto outcomes = evaluator.evaluate({.model = *group.model,
                                                .workload = *group.workload,
                                                .kind = results::CellKind::quality,
                                                .sample_id = group.sample_ids[i],
                                                .sample_index = static_cast<int64_t>(i),
                                                .cells = {&cell, 1},
                                                .next = {&next, next < draws ? 1U : 0U}});
      EXPECT_EQ(outcomes.front().failure, "");
      said[group.sample_ids[i]] = outcomes.front().result.prediction;
    }
    return said;
  };
  const std::map<std::string, std::string> once = answers(1), thrice = answers(3);
  ASSERT_EQ(once.size(), 1U);
  ASSERT_EQ(thrice.size(), 3U);
  const std::string& id = once.begin()->first;
  EXPECT_EQ(thrice.at(id + "#1"), once.at(id));
  EXPECT_NE(thrice.at(id + "#2"), thrice.at(id + "#1"));
  EXPECT_NE(thrice.at(id + "#3"), thrice.at(id + "#2"));
}

TEST_F(ModelEvaluatorTest, GreedyAnswersAreNotDrawn) {
  experiment::ExperimentConfig greedy = config();
  greedy.engine.draws = 2;
  ModelEvaluator evaluator(greedy, {.home = folder_.path(), .data_dir = {}, .hardware = {}});
  const std::string error = testing::error_of([&] { (void)experiment::make_plan(greedy, evaluator); });
  EXPECT_NE(error.find("2 greedy answers to each sample"), std::string::npos) << error;
}

TEST_F(ModelEvaluatorTest, FilesThatAMethodReadsArePartOfItsCells) {
  const fs::path weights = folder_ / "w.safetensors", draft = folder_ / "models/small";
  write_file(weights, "of a fit");
  testing::write_tiny_model(draft, 5);
  const json fitted = {{"name", "expected_attention"},
                       {"label", "fitted"},
                       {"keep", 0.5},
                       {"statistics", "fitted"},
                       {"weights", weights.string()}};
  expect_files(fitted, {{"weights", weights}});
  json nested = fitted;
  nested.erase("label");
  expect_files({{"name", "vericache"}, {"label", "nested"}, {"drafter", nested}}, {{"drafter.weights", weights}});
  expect_files({{"name", "spec_decode"}, {"label", "by name"}, {"draft_model", "small"}},
               {{"draft_model", draft / "config.json"}});
  expect_files({{"name", "snapkv"}, {"label", "none"}, {"keep", 0.5}}, {});
}

TEST_F(ModelEvaluatorTest, WeightsThatAMethodFindsByItselfArePartOfItsCells) {
  const fs::path file = folder_ / "fitted/tiny/loki.safetensors";
  const auto fit = [&](const std::string& fingerprint, float value) {
    fs::create_directories(file.parent_path());
    write_fitted(file,
                 {.place = "",
                  .tensors = {{"x", {.shape = {1}, .values = {value}}}},
                  .metadata = {{kFittedFingerprint, fingerprint}}},
                 /*bf16=*/false);
  };
  const auto loki = [&] { return cells({"full", {{"name", "loki"}, {"tokens", 4}, {"label", "loki"}}}).at("loki"); };
  const std::string none = loki().cell_id;
  fit("of another model", 1);
  EXPECT_EQ(loki().cell_id, none);
  const std::string own = fingerprint_of(*open_checkpoint(model_));
  fit(own, 1);
  const results::CellRecord found = loki();
  EXPECT_TRUE(json::parse(found.engine_json).at("files").contains("loki: fitted")) << found.engine_json;
  fit(own, 2);
  EXPECT_NE(loki().cell_id, found.cell_id);
  const json over = {{"name", "vericache"}, {"label", "over"}, {"drafter", "kvtc"}};
  EXPECT_FALSE(json::parse(cells({"full", over}).at("over").engine_json).contains("files"));
  fs::rename(file, file.parent_path() / "kvtc-global.safetensors");
  EXPECT_TRUE(json::parse(cells({"full", over}).at("over").engine_json).at("files").contains("over: drafter.fitted"));
  EXPECT_NE(found.cell_id, none);
}

TEST_F(ModelEvaluatorTest, WeightsThatAMethodLacksAreNamedWithTheCommandThatBringsThem) {
  const auto missing = [&](json method) {
    const experiment::ExperimentConfig tiny = config({"full", method});
    ModelEvaluator evaluator(tiny, {.home = folder_.path(), .data_dir = {}, .hardware = {}});
    return evaluator.missing_weights(tiny.models.front(), tiny.methods.back());
  };
  EXPECT_EQ(missing({{"name", "kvzap"}, {"keep", 0.5}, {"kind", "mlp"}}),
            fmt::format("weights of kvzap-mlp for {0}: `kvarena fit kvzap:kind=mlp --model {0}`", model_.string()));
  EXPECT_EQ(missing({{"name", "vericache"}, {"drafter", {{"name", "duo_attention"}, {"sparsity", 0.5}}}}),
            fmt::format("weights of duo_attention for {0}: `kvarena fit duo_attention --model {0}`", model_.string()));
  EXPECT_EQ(missing({{"name", "eagle3"}, {"weights", "org/EAGLE3"}}), "weights org/EAGLE3: `hf download org/EAGLE3`");
  EXPECT_EQ(missing({{"name", "spec_decode"}, {"draft_model", "small"}}),
            "weights small: bring them to " + (folder_ / "models/small").string());
  testing::write_tiny_model(folder_ / "models/small", 5);
  for (const json& complete :
       {json{{"name", "spec_decode"}, {"draft_model", "small"}}, json{{"name", "expected_attention"}, {"keep", 0.5}},
        json{{"name", "loki"}, {"tokens", 4}, {"basis", "prompt"}}, json{{"name", "speccache"}},
        json{{"name", "snapkv"}, {"keep", 0.5}}}) {
    EXPECT_EQ(missing(complete), "") << complete;
  }
}

TEST_F(ModelEvaluatorTest, FilesThatAMetricReadsAreOnTheCard) {
  const auto card = [&](const json& metrics) {
    return json::parse(cells({"full"}, metrics).at("full").protocol_json).value("metric_data_sha256", "");
  };
  const fs::path encoder = folder_ / "models/all-minilm-l6-v2/tokenizer.json", words = folder_ / "jieba/dict.txt";
  const char* home = std::getenv("KVARENA_HOME");
  const std::string before = home == nullptr ? "" : home;
  ::setenv("KVARENA_HOME", folder_.path().c_str(), 1);
  for (const auto& [metric, file] : {std::pair("embedding_similarity", encoder), std::pair("qa_f1_zh", words)}) {
    EXPECT_EQ(card({metric}), "") << "without the files the first score says what is missing";
    fs::create_directories(file.parent_path());
    write_file(file, "some");
    const std::string some = card({metric});
    EXPECT_NE(some, "");
    write_file(file, "others");
    EXPECT_NE(card({metric}), some);
    EXPECT_EQ(card(json::array()), "");
  }
  const experiment::ExperimentConfig tiny = config({"full"}, {"qa_f1_zh"});
  ModelEvaluator evaluator(tiny, {.home = folder_.path(), .data_dir = {}, .hardware = {}});
  const auto inputs = evaluator.inputs(tiny.models.front());
  EXPECT_TRUE(std::ranges::any_of(
      inputs, [](const auto& input) { return input.kind == "artifact" && input.name == "qa_f1_zh: dict.txt"; }));
  home == nullptr ? ::unsetenv("KVARENA_HOME") : ::setenv("KVARENA_HOME", before.c_str(), 1);
}

TEST_F(ModelEvaluatorTest, AChatTemplateThatFailsIsRefusedBeforeAnythingRuns) {
  write_file(model_ / "tokenizer_config.json", R"({"chat_template": "{{ 'Q:' + m }}"})");
  experiment::ExperimentConfig tiny = config();
  tiny.workloads.front().name = "function_calling";
  tiny.workloads.front().settings_json = "{}";
  const auto refusal = [&] {
    ModelEvaluator evaluator(tiny, {.home = folder_.path(), .data_dir = {}, .hardware = {}});
    return testing::error_of([&] {
      (void)evaluator.protocol_card(tiny.models.front(), tiny.workloads.front(), tiny.methods.front(),
                                    results::CellKind::quality);
    });
  };
  EXPECT_NE(refusal().find("found str + undefined"), std::string::npos) << refusal();
  EXPECT_NE(refusal().find("\"template\" beside the model's name chooses another"), std::string::npos) << refusal();
  tiny.models.front().chat_template = "chatml";
  EXPECT_EQ(refusal(), "");
}

TEST_F(ModelEvaluatorTest, WhatARetrievalMethodAttendsToIsMeasuredUnasked) {
  const experiment::ExperimentConfig tiny =
      config({"full", {{"name", "knorm"}, {"keep", 0.5}}, {{"name", "ideal_topk"}, {"keep", 0.25}, {"label", "top"}}});
  ModelEvaluator evaluator(tiny, {.home = folder_.path(), .data_dir = {}, .hardware = {}});
  const experiment::Plan plan = experiment::make_plan(tiny, evaluator);
  const experiment::CellGroup& group = plan.groups.front();
  ASSERT_EQ(group.cells.front().record.kind, results::CellKind::quality);
  std::vector<const experiment::PlannedCell*> cells;
  for (const experiment::PlannedCell& cell : group.cells) cells.push_back(&cell);
  evaluator.begin_model(tiny.models.front(), tiny.engine);
  const auto outcomes = evaluator.evaluate({.model = tiny.models.front(),
                                            .workload = tiny.workloads.front(),
                                            .kind = results::CellKind::quality,
                                            .sample_id = group.sample_ids.front(),
                                            .sample_index = 0,
                                            .cells = cells});
  for (size_t i = 0; i < outcomes.size(); ++i) {
    ASSERT_EQ(outcomes[i].failure, "");
    const auto& values = outcomes[i].result.values;
    const auto share = std::ranges::find(values, "attended_share", &results::MetricValue::metric);
    if (cells[i]->record.method != "top") {
      EXPECT_EQ(share, values.end()) << cells[i]->record.method;
    } else {
      ASSERT_NE(share, values.end());
      EXPECT_NEAR(share->value, 0.25, 0.05);
    }
  }
}

TEST_F(ModelEvaluatorTest, AModelThatCannotBeOpenedIsAnErrorAndLeavesNothingBehind) {
  const experiment::ExperimentConfig tiny = config();
  ModelEvaluator evaluator(tiny, {.home = folder_.path(), .data_dir = {}, .hardware = {}});
  fs::remove_all(model_);
  for (int attempt = 0; attempt < 2; ++attempt)
    EXPECT_THROW(evaluator.begin_model(tiny.models.front(), tiny.engine), UserError);
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
