// Codecs in Python files: KIVI restated errs as that in C++ does, one that loses nothing answers as full KV, and their
// bytes are marked as simulated.

#include <gtest/gtest.h>

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

const std::string kCodecs = KVARENA_SOURCE_DIR "/tests/plugins/codecs.py";

class PythonCodecs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("${KVARENA_PYTHON:-python3} -c 'import numpy' 2>/dev/null") != 0) {
      GTEST_SKIP() << "Python has no numpy: run scripts/setup, or set KVARENA_PYTHON";
    }
  }

  [[nodiscard]] Finished with_config(const char* command, const json& methods, const std::vector<std::string>& more) {
    std::ofstream(folder_ / "config.json")
        << json{{"name", "codecs"},
                {"models", models_},
                {"workloads", {{{"name", "needle"}, {"words", {100}}, {"limit", 1}}}},
                {"methods", methods},
                {"metrics", {"acceptance"}},
                {"engine", {{"max_new_tokens", 12}, {"noise_floor", 0}}},
                {"output", {{"database", "run.db"}}}};
    std::vector<std::string> words{"--plugin", kCodecs, command, "config.json"};
    words.insert(words.end(), more.begin(), more.end());
    return run_kvarena(words, {.folder = folder_.path()});
  }

  ScratchFolder folder_;
  TinyModelFolder model_;
  json models_ = {{{"name", "tiny"}, {"path", model_.path()}}};
};

TEST_F(PythonCodecs, ErrAsTheirTwinInCxx) {
  for (const int bits : {2, 4}) {
    const json methods = {{{"name", "kivi"}, {"bits", bits}, {"group_size", 16}, {"residual_length", 32}},
                          {{"name", "py_kivi"}, {"bits", bits}, {"group_size", 16}, {"block", 32}}};
    const Finished finished =
        with_config("codecs", methods, {"--model", model_.path(), "--context", "256", "--repeats", "1", "--json"});
    ASSERT_EQ(finished.code, 0) << finished.err;
    const json rows = json::parse(finished.out).at("codecs");
    ASSERT_EQ(rows.size(), 2U);
    for (const char* number : {"bits_per_number", "key_error"}) {
      const auto twin = rows[0].at(number).get<double>();
      EXPECT_NEAR(rows[1].at(number).get<double>(), twin, 1e-3 * twin) << number << " at " << bits << " bits";
    }
    const auto twin = rows[0].at("value_error").get<double>();  // of all but the newest values
    EXPECT_NEAR(rows[1].at("value_error").get<double>(), twin, 0.05 * twin);
  }
}

TEST_F(PythonCodecs, ThatLoseNothingAnswerAsFullKv) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  models_ = {"smollm2-135m"};
  const json methods = {
      {{"name", "full"}},
      {{"name", "exact"}, {"label", "exact"}},
      {{"name", "vericache"}, {"draft_length", 4}, {"drafter", {{"name", "exact"}}}, {"label", "drafts"}}};
  const Finished finished = with_config("run", methods, {"--quiet"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const results::ResultsReader reader(folder_ / "run.db");
  std::map<std::string, std::map<std::string, results::MetricValue>> values;
  for (const auto& row : reader.cells("codecs")) {
    for (const std::string& sample : reader.done_samples(row.cell.cell_id)) {
      for (const results::MetricValue& value : reader.sample_values(row.cell.cell_id, sample)) {
        values[row.cell.method][value.metric] = value;
      }
    }
  }
  EXPECT_NEAR(values["exact"]["kl_nats"].value, 0, 1e-5) << "attention over two segments rounds otherwise";
  EXPECT_EQ(values["drafts"]["acceptance_rate"].value, 1);
  for (const char* metric : {"resident_bytes", "kept_bytes_fraction", "compression_factor"}) {
    EXPECT_EQ(values["full"][metric].storage, results::Storage::real) << metric;
    EXPECT_EQ(values["exact"][metric].storage, results::Storage::simulated) << metric;
    EXPECT_EQ(values["drafts"][metric].storage, results::Storage::simulated) << metric;
  }
  EXPECT_EQ(values["exact"]["bits_per_number"].value, 8);
  EXPECT_LT(values["exact"]["kept_bytes_fraction"].value, 0.6);
}

TEST_F(PythonCodecs, FaultsAreSaidInASentence) {
  const std::map<std::string, std::string> said = {{"shape", "dequantise() of keys returned [1, "},
                                                   {"nan", "a decoded key that is not finite"},
                                                   {"raise", "NameError: name 'undefined' is not"},
                                                   {"bits", "expected 0 < bits <= 32, block >= 1, residual >= 0"}};
  for (const auto& [how, words] : said) {
    const json methods = {{{"name", "bad_codec"}, {"how", how}}};
    const Finished finished = with_config("codecs", methods, {"--model", model_.path(), "--context", "64"});
    EXPECT_NE(finished.code, 0) << how;
    EXPECT_TRUE(contains(flowing(finished.out + finished.err), words)) << how << ": " << finished.out << finished.err;
  }
}

}  // namespace
}  // namespace kvarena::testing
