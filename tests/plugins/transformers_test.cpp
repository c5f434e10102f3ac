// Models that transformers computes: full KV answers as ours does, presses hold what their caches hold, and what goes
// wrong costs one cell. Where Python has no transformers and kvpress, that it says so.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/results/results_reader.h"
#include "tests/harness/cli/check.h"
#include "tests/harness/cli/tiny_model_folder.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;

const std::string kPresses = KVARENA_SOURCE_DIR "/python/kvarena/plugins/press.py";

constexpr int64_t kWindow = 2048;  // has room for a workload's prompt

class Elsewhere : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("${KVARENA_PYTHON:-python3} -c 'import transformers, kvpress' >/dev/null 2>&1") != 0) {
      GTEST_SKIP() << "Python has no kvpress: pip install kvpress==0.5.5, and KVARENA_PYTHON names that Python";
    }
  }

  static json config(const std::string& path) {
    const json model{{"name", "tiny"}, {"path", path}, {"dtype", "f32"}, {"template", "none"}};
    json elsewhere = model;
    elsewhere.update({{"label", "elsewhere"}, {"engine", "transformers"}});
    return {{"name", "engines"},
            {"models", {model, elsewhere}},
            {"engine", {{"max_new_tokens", 6}, {"noise_floor", 1}}},
            {"workloads", {{{"name", "needle"}, {"words", {60}}, {"samples", 2}}}},
            {"output", {{"database", "run.db"}}}};
  }

  static json press(const std::string& text) { return {{"name", "kvpress"}, {"press", text}, {"keep", 0.5}}; }
};

using Values = std::map<std::string, double>;

/// Values of the first sample of each cell of kind quality, by model and method.
std::map<std::string, Values> first_values(const results::ResultsReader& reader) {
  std::map<std::string, Values> found;
  for (const auto& row : reader.cells("engines")) {
    if (row.cell.kind != results::CellKind::quality) continue;
    Values& values = found[row.cell.model + ", " + row.cell.method];
    for (const char* metric :
         {"kl_nats", "exact_match_full", "resident_bytes", "full_kv_bytes", "kept_bytes_fraction"}) {
      const auto samples = reader.values(row.cell.cell_id, metric, results::Clock::none);
      if (!samples.empty()) values[metric] = samples.front().value;
    }
  }
  return found;
}

TEST_F(Elsewhere, FullAndPressesFillTheSameDatabase) {
  const TinyModelFolder model(kWindow);
  const ScratchFolder scratch;
  json config = this->config(model.path());
  config["methods"] = {
      {{"name", "full"}}, press("KnormPress()"), press("AdaKVPress(KnormPress())"), {{"name", "knorm"}, {"keep", 0.5}}};
  std::ofstream(scratch / "config.json") << config.dump();
  const Finished finished =
      run_kvarena({"--plugin", kPresses, "run", "config.json", "--quiet"}, {.folder = scratch.path()});
  EXPECT_EQ(finished.code, 1) << finished.err;  // methods of the other engine
  EXPECT_TRUE(contains(finished.err,
                       "method knorm is kvarena's own; a model with \"engine\": \"transformers\" has full "
                       "and kvpress"))
      << finished.err;
  EXPECT_TRUE(contains(finished.err, "found no ScorerPress")) << finished.err;

  const results::ResultsReader reader(scratch / "run.db");
  auto values = first_values(reader);
  Values& full = values["elsewhere, full"];
  EXPECT_EQ(full["kl_nats"], 0);
  EXPECT_EQ(full["exact_match_full"], 1);
  EXPECT_EQ(full["kept_bytes_fraction"], 1);
  const double entry = 3 * 2 * 2 * 32 * sizeof(float);  // layers, keys and values, kv heads, head_dim
  const double tokens = full["full_kv_bytes"] / entry;
  EXPECT_EQ(tokens, std::floor(tokens)) << "whole entries";
  Values& knorm = values["elsewhere, kvpress keep=0.5 press=KnormPress()"];
  EXPECT_EQ(knorm["resident_bytes"], std::floor(tokens * 0.5) * entry);
  EXPECT_GT(knorm["kl_nats"], 0);
  Values& ada = values["elsewhere, kvpress keep=0.5 press=AdaKVPress(KnormPress())"];
  EXPECT_EQ(ada["kept_bytes_fraction"], 1) << "its cache holds what attention leaves out";
  EXPECT_GT(ada["kl_nats"], 0);

  std::map<std::string, std::map<std::string, std::string>> predictions;
  for (const auto& row : reader.cells("engines")) {
    if (row.cell.kind == results::CellKind::quality)
      predictions[row.cell.model + row.cell.method] = reader.predictions(row.cell.cell_id);
    const json card = json::parse(row.cell.protocol_json);
    EXPECT_EQ(card.contains("engine"), row.cell.model == "elsewhere");
    if (row.cell.model == "elsewhere") {
      EXPECT_TRUE(contains(card.at("engine").get<std::string>(), "transformers ")) << card;
    }
  }
  EXPECT_EQ(predictions.at("elsewherefull").size(), 2U);
  EXPECT_EQ(predictions.at("elsewherefull"), predictions.at("tinyfull"));
}

TEST_F(Elsewhere, ParityFindsTheSameEntries) {
  const TinyModelFolder model(kWindow);
  const ScratchFolder scratch;
  std::ofstream(scratch / "pairs.json") << R"json([{"method": {"name": "full"}},
    {"press": "KeyDiffPress()", "method": {"name": "keydiff"}},
    {"press": "SnapKVPress(window_size=8)", "method": {"name": "snapkv", "window": 8}},
    {"press": "AdaKVPress(KeyDiffPress())", "method": {"name": "adakv", "scorer": "keydiff"}},
    {"press": "KnormPress()", "method": {"name": "streaming_llm"}}, {"press": "LeverageScorePress()"},
    {"press": "ThinKPress()", "method": {"name": "knorm"}}])json";
  const Finished finished =
      run_kvarena({"parity", "--model", model.path(), "--workload", "needle:words=[60]", "--prompts", "1", "--tokens",
                   "4", "--pairs", "pairs.json", "--output", "table.md"},
                  {.folder = scratch.path()});
  EXPECT_EQ(finished.code, 1) << finished.err;  // a press that takes no budget
  std::ifstream file(scratch / "table.md");
  const std::string table((std::istreambuf_iterator<char>(file)), {});
  for (const char* row :
       {"| `full` | full KV | 100.00% |", "| `keydiff` | `KeyDiffPress()` | 100.00% |",
        "| `snapkv:window=8` | `SnapKVPress(window_size=8)` | 100.00% |",
        "| `adakv:scorer=keydiff` | `AdaKVPress(KeyDiffPress())` | 100.00% |", "| – | `LeverageScorePress()` | – |",
        "| `knorm` | `ThinKPress()` | – |", "- `ThinKPress()`, transformers: "}) {
    EXPECT_TRUE(contains(table, row)) << row << "\n" << table;
  }
  EXPECT_FALSE(contains(table, "| `streaming_llm` | `KnormPress()` | 100.00% |")) << table;
}

TEST(WithoutTransformers, OneSentenceSaysSo) {
  if (std::system("${KVARENA_PYTHON:-python3} -c 'import transformers' >/dev/null 2>&1") == 0) {
    GTEST_SKIP() << "Python has transformers";
  }
  const TinyModelFolder model(kWindow);
  const std::vector<std::string> words = {"parity", "--model", model.path()};
  expect_refused(run_kvarena(words), "no transformers in this Python: pip install transformers torch");
  expect_refused(run_kvarena(words, {.environment = {{"KVARENA_PYTHON", "/nowhere/python"}}}),
                 "no program \"/nowhere/python\"");
}

TEST(OtherEngine, IsRefusedWhatOnlyOursDoes) {
  const ScratchFolder scratch;
  std::ofstream(scratch / "config.json") << R"({
    "name": "bad", "models": [{"name": "tiny", "path": "/nowhere", "engine": "transformers", "kv_dtype": "f32"}],
    "workloads": ["fact_qa"], "methods": ["full"], "timing": {}})";
  const Finished finished = run_kvarena({"run", "config.json"}, {.folder = scratch.path()});
  expect_refused(finished, "models[0].engine: found transformers and a group \"timing\", expected quality");
  EXPECT_TRUE(contains(finished.err, "transformers and a kv_dtype of its own")) << finished.err;
}

}  // namespace
}  // namespace kvarena::testing
