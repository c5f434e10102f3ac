#pragma once
// Runs of a tiny model behind an endpoint, into a database that the test looks at.

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/evaluate/model_evaluator.h"
#include "harness/experiment/runner.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model_files.h"
#include "tests/support/tiny_vocabulary.h"

namespace kvarena::evaluate {

using experiment::ExperimentConfig;
using nlohmann::json;
using results::CellState;

class ServedRun : public ::testing::Test {
 protected:
  ServedRun() {
    testing::write_tiny_model(folder_ / "tiny", 1);
    testing::write_vocabulary(folder_ / "tiny", testing::ascii());
  }

  [[nodiscard]] json model(const std::string& url, const std::string& engine) const {
    return {{"name", "tiny"},     {"path", (folder_ / "tiny").string()},
            {"template", "none"}, {"endpoint", url},
            {"engine", engine},   {"model", "tiny"},
            {"request_tries", 1}};
  }
  [[nodiscard]] ExperimentConfig config(const json& model, const json& methods, json more = json::object()) const {
    json text = {{"name", "served"},
                 {"models", {model}},
                 {"workloads", {{{"name", "fact_qa"}, {"things", 1}, {"filler", 0}, {"samples", 3}}}},
                 {"methods", methods},
                 {"engine", {{"max_new_tokens", 6}, {"noise_floor", 0}}}};
    text.update(more);
    return experiment::parse_config(text.dump(), "served.json", {}, registry_validators());
  }
  [[nodiscard]] static json two_settings() {
    return {{{"name", "server"}, {"label", "bf16"}},
            {{"name", "server"}, {"label", "fp8"}, {"model", "tiny-fp8"}, {"settings", {{"kv_cache_dtype", "fp8"}}}}};
  }
  /// Runs, or runs again, into one database.
  experiment::RunSummary run(const ExperimentConfig& of, bool retry_failed = false) {
    ModelEvaluator evaluator(of, {.home = folder_.path(), .data_dir = {}, .hardware = {}});
    const experiment::Plan plan = experiment::make_plan(of, evaluator);
    auto store = results::ResultsStore::open_or_create(database_);
    Progress progress({.style = ProgressOptions::Style::quiet, .stream = quiet_.get(), .now = {}});
    const std::atomic<bool> stop = false;
    return experiment::run_plan(plan, evaluator, store, progress, stop, {.retry_failed = retry_failed});
  }
  /// Values of a metric of a cell, in the order of samples.
  [[nodiscard]] std::vector<double> values(const std::string& method, const std::string& metric,
                                           results::Clock clock = results::Clock::none) const {
    const results::ResultsReader reader(database_);
    std::vector<double> found;
    for (const results::ValueRow& row : reader.values(cell(method).cell.cell_id, metric, clock)) {
      found.push_back(row.value);
    }
    return found;
  }
  [[nodiscard]] results::CellRow cell(const std::string& method) const {
    for (results::CellRow& row : results::ResultsReader(database_).cells("served")) {
      if (row.cell.method == method && row.cell.kind == kind_) return std::move(row);
    }
    ADD_FAILURE() << method;
    return {};
  }
  [[nodiscard]] std::vector<results::SampleResult> samples(const std::string& method) const {
    return results::ResultsReader(database_).samples(cell(method).cell.cell_id);
  }

  testing::TemporaryFolder folder_;
  std::filesystem::path database_ = folder_ / "served.db";
  results::CellKind kind_ = results::CellKind::quality;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> quiet_{std::fopen("/dev/null", "w"), std::fclose};
};

}  // namespace kvarena::evaluate
