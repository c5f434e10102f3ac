#pragma once
// A database file of one experiment with given methods, and what a report of it holds.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/results/results_store.h"
#include "reports/document.h"
#include "reports/experiment_report.h"

namespace kvarena::reports {

namespace fs = std::filesystem;

struct MethodScores {
  std::string label;
  std::vector<double> scores;
  std::string card = R"({"metrics": "qa_f1 v1", "dtype": "bf16"})";
  bool active = true;
  std::string failure = {};
  std::string model = "m";
  bool baseline = false;                        // beside the first, for a second model
  results::Clock clock = results::Clock::none;  // clock of one more value, "wait_ms"
  results::CellKind kind = results::CellKind::quality;
  std::string metric = "qa_f1";  // metric of the scores
  results::Storage storage = results::Storage::real;
  std::string prompt = "prompt";             // the samples' hashes begin so
  std::vector<results::Series> series = {};  // further series of every sample
  std::string name = {};                     // that it is registered under; the label unless given
  std::string settings = "{}";
  double kept = 0.5;       // share of full KV's bytes
  std::vector<float> itl;  // repeats of the time of a token
  double accepted = 0;     // accepted tokens of every sample's rounds; 0: no value
  std::string answer = "<i>answer</i>";
  std::vector<double> counts = {};                // of every sample, what its score is a share of; none: no value
  std::string counted = "golden_calls";           // metric of the counts
  std::vector<results::MetricValue> values = {};  // further values of every sample
};

inline const std::vector<results::MetricDefinition> kDefinitions = {
    {.metric = "qa_f1", .unit = "fraction", .better = results::Direction::higher, .table_scale = 100},
    {.metric = "perplexity", .unit = "perplexity", .better = results::Direction::lower},
    {.metric = "time_to_first_token_ms", .unit = "ms", .better = results::Direction::lower},
    {.metric = "inter_token_latency_ms", .unit = "ms", .better = results::Direction::lower},
    {.metric = "kept_bytes_fraction", .unit = "fraction", .better = results::Direction::lower, .table_scale = 100}};

inline std::string id_of(const MethodScores& method) {
  return method.model + method.label + std::string(results::name(method.kind));
}

class ReportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("reports-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// A database with one workload and the given methods, the first of them the baseline, as reports and comparisons
  /// read it.
  ExperimentData experiment(const std::string& file, const std::vector<MethodScores>& methods,
                            const std::vector<results::PublishedValue>& published = {},
                            const std::string& origin = "") {
    {
      auto store = results::ResultsStore::open_or_create(folder_ / file);
      std::vector<results::CellRecord> cells;
      for (size_t i = 0; i < methods.size(); ++i) {
        cells.push_back({.cell_id = id_of(methods[i]),
                         .experiment = "e",
                         .kind = methods[i].kind,
                         .model = methods[i].model,
                         .workload = "facts",
                         .method = methods[i].label,
                         .method_name = methods[i].name.empty() ? methods[i].label : methods[i].name,
                         .settings_json = methods[i].settings,
                         .protocol_json = methods[i].card,
                         .protocol_sha256 = "card " + methods[i].card,
                         .baseline = methods[i].label == methods[0].label || methods[i].baseline,
                         .position = static_cast<int64_t>(i),
                         .planned_samples = static_cast<int64_t>(methods[i].scores.size())});
      }
      const std::string run =
          store.begin_run({.experiment = "e", .title = "E", .published = published}, {.experiment = "e"});
      store.define_metrics(kDefinitions);
      store.upsert_cells(cells);
      for (const MethodScores& method : methods) {
        if (!method.failure.empty()) {
          const results::CellFailure failure{.cell_id = id_of(method), .reason = method.failure};
          store.commit(run, {}, {&failure, 1});
          continue;
        }
        std::vector<results::SampleResult> results;
        for (size_t i = 0; i < method.scores.size(); ++i) {
          results.push_back({.cell_id = id_of(method),
                             .sample_id = fmt::format("s{}", i),
                             .sample_index = static_cast<int64_t>(i),
                             .prompt_sha256 = method.prompt + std::to_string(i),
                             .prediction = method.answer,
                             .active = method.active,
                             .values = {{.metric = method.metric,
                                         .value = method.scores[i],
                                         .unit = method.metric == "qa_f1" ? "fraction" : method.metric},
                                        {.metric = "kept_bytes_fraction",
                                         .value = method.kept,
                                         .unit = "fraction",
                                         .storage = method.storage},
                                        {.metric = "resident_bytes", .value = 1000, .unit = "bytes"},
                                        {.metric = "wait_ms", .value = 7, .unit = "ms", .clock = method.clock},
                                        {.metric = "kl_nats", .value = 0.1, .unit = "nats"}},
                             .series = {{.name = "kl_nats", .values = {0.0F, 0.1F, 0.2F}, .unit = "nats"},
                                        {.name = "time_to_first_token_ms",
                                         .values = {10.0F, 11.0F, 12.0F, 40.0F},
                                         .unit = "ms",
                                         .clock = results::Clock::measured}}});
          std::ranges::copy(method.series, std::back_inserter(results.back().series));
          std::ranges::copy(method.values, std::back_inserter(results.back().values));
          if (!method.itl.empty()) {
            results.back().series.push_back({.name = "inter_token_latency_ms",
                                             .values = method.itl,
                                             .unit = "ms",
                                             .clock = results::Clock::measured});
          }
          if (!method.counts.empty())
            results.back().values.push_back({.metric = method.counted, .value = method.counts[i], .unit = "calls"});
          if (method.accepted > 0) {
            results.back().values.push_back({.metric = "acceptance_rate", .value = 0.5, .unit = "fraction"});
            results.back().values.push_back({.metric = "acceptance_length",
                                             .value = method.accepted + 0.1 * static_cast<double>(i),
                                             .unit = "tokens"});
          }
        }
        store.commit(run, results);
        store.settle_cell(id_of(method), {});
      }
      if (!origin.empty()) store.add_input(run, {.kind = "data", .name = "facts", .detail_json = origin, .model = "m"});
      store.finish_run(run, results::RunState::finished);
    }
    const results::ResultsReader reader(folder_ / file);
    ExperimentData data = read_experiment(reader, "");
    ExperimentData compared = read_run(reader, "");
    for (size_t i = 0; i < data.cells.size(); ++i) data.cells[i].answers = std::move(compared.cells[i].answers);
    return data;
  }

  fs::path folder_;
};

inline std::vector<double> scores(int64_t n, double value, double wobble = 0) {
  std::vector<double> list;
  for (int64_t i = 0; i < n; ++i) list.push_back(value + (i % 2 == 0 ? wobble : -wobble));
  return list;
}

inline Table table(const Document& document, const std::string& id) {
  for (const Section& section : document.sections) {
    for (const Table& candidate : section.tables) {
      if (candidate.id == id) return candidate;
    }
  }
  throw std::runtime_error("no table " + id);
}

}  // namespace kvarena::reports
