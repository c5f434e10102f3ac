#include "harness/experiment/runner.h"

#include <gtest/gtest.h>

#include <csignal>
#include <new>
#include <set>

#include "tests/harness/experiment/support.h"

namespace kvarena::experiment {
namespace {

using results::CellState;

class RunnerTest : public ::testing::Test {
 protected:
  std::map<std::string, int> states() {
    std::map<std::string, int> count;
    for (const auto& row : results::ResultsReader(rig_.path).cells("small")) {
      ++count[std::string(results::name(row.state))];
    }
    return count;
  }

  TemporaryFolder folder_;
  Rig rig_{folder_ / "r.db"};
};

TEST_F(RunnerTest, JudgesAllMethodsOfASampleInOneCall) {
  std::vector<std::string> tasks;
  rig_.evaluator.before_sample = [&](const EvalTask& task) {
    tasks.push_back(fmt::format("{} {}", task.sample_id, task.cells.size()));
  };
  const RunSummary summary = rig_.run();
  EXPECT_EQ(summary.evaluated, 40);
  EXPECT_EQ(summary.already_done, 0);
  EXPECT_FALSE(summary.interrupted);
  ASSERT_EQ(tasks.size(), 10U);
  EXPECT_EQ(tasks.front(), "qasper-0 4");
  EXPECT_EQ(tasks.back(), "needle-5 4");
  EXPECT_EQ(rig_.evaluator.loads, 1);
  EXPECT_EQ(rig_.evaluator.unloads, 1);
  EXPECT_EQ(states(), (std::map<std::string, int>{{"done", 8}}));

  const results::ResultsReader reader(rig_.path);
  const auto run = reader.runs("small").at(0);
  EXPECT_EQ(run.state, results::RunState::finished);
  EXPECT_EQ(run.config_text, kSmallConfig);
  EXPECT_FALSE(run.cpu_model.empty());
  EXPECT_EQ(reader.inputs(run.run_id).at(0).name, "smollm2-135m");
  const auto cell = reader.cells("small").at(0).cell;
  EXPECT_EQ(reader.cell_values(cell.cell_id).at(0).metric, "sum_f1");
}

TEST_F(RunnerTest, RunningAgainJudgesNothingAndLoadsNoModel) {
  (void)rig_.run();
  const std::string digest = rig_.digest();
  const RunSummary again = rig_.run();
  EXPECT_EQ(again.evaluated, 0);
  EXPECT_EQ(again.already_done, 40);
  EXPECT_EQ(rig_.evaluator.loads, 1);
  EXPECT_EQ(rig_.digest(), digest);
}

TEST_F(RunnerTest, ASettingFromTheCommandLineStandsBesideTheConfigsOwn) {
  const std::string text = R"({"name": "small", "models": ["smollm2-135m"], "workloads": ["qasper"],
    "methods": ["full", {"name": "snapkv", "keep": 0.5, "label": "SnapKV, half"}], "engine": {"noise_floor": 0}})";
  Rig rig(folder_ / "both.db", text);
  (void)rig.run();
  rig.changes = {.set = {"methods.snapkv.keep=0.25"}, .limit = 2};
  (void)rig.run();
  std::map<std::string, int64_t> samples;
  for (const auto& row : results::ResultsReader(rig.path).cells("small")) samples[row.cell.method] = row.done_samples;
  EXPECT_EQ(samples,
            (std::map<std::string, int64_t>{{"full", 6}, {"SnapKV, half", 6}, {"SnapKV, half [keep=0.25]", 2}}));
}

TEST_F(RunnerTest, StoppingAndGoingOnEqualsNotStopping) {
  Rig undisturbed(folder_ / "u.db");
  (void)undisturbed.run();
  for (int rounds = 0;; ++rounds) {
    ASSERT_LT(rounds, 20) << "no progress";
    rig_.stop = false;
    rig_.evaluator.before_sample = [&, calls = 0](const EvalTask&) mutable { rig_.stop = ++calls == 3; };
    const RunSummary summary = rig_.run();
    if (!summary.interrupted) break;
    EXPECT_EQ(summary.evaluated, 12) << "the sample in work is finished, no other begun";
    EXPECT_EQ(results::ResultsReader(rig_.path).runs("small").back().finished_at.size(), 20U);
  }
  EXPECT_EQ(rig_.digest(), undisturbed.digest());
}

TEST_F(RunnerTest, AMethodThatFailsCostsItsOwnCellOnly) {
  rig_.evaluator.failure = [](const EvalTask& task, const PlannedCell& cell) {
    return cell.record.method == "kivi bits=2" && task.sample_id == "qasper-2" ? "needs 3 GB, has 1" : "";
  };
  std::map<std::string, size_t> asked;
  rig_.evaluator.before_sample = [&](const EvalTask& task) { asked[task.sample_id] = task.cells.size(); };
  const RunSummary summary = rig_.run();
  EXPECT_EQ(summary.failed_cells, 1);
  EXPECT_EQ(summary.evaluated, 38);
  EXPECT_EQ(asked["qasper-2"], 4U);
  EXPECT_EQ(asked["qasper-3"], 3U) << "a cell that failed is left alone";
  EXPECT_EQ(asked["needle-0"], 4U) << "its method goes on in other cells";
  EXPECT_EQ(states(), (std::map<std::string, int>{{"done", 7}, {"failed", 1}}));

  // The failure stays until it is asked for again.
  rig_.evaluator.failure = nullptr;
  EXPECT_EQ(rig_.run().evaluated, 0);
  EXPECT_EQ(states()["failed"], 1);
  EXPECT_EQ(rig_.run({.retry_failed = true}).evaluated, 2);
  Rig healthy(folder_ / "h.db");
  (void)healthy.run();
  EXPECT_EQ(rig_.digest(), healthy.digest());
}

TEST_F(RunnerTest, AMethodWithoutItsWeightsIsMissingUntilTheyAreThere) {
  rig_.catalog.missing = [](const std::string& method) {
    return method == "kivi bits=2" ? "weights of kivi: `fit`" : "";
  };
  const RunSummary without = rig_.run();
  EXPECT_EQ(without.missing_cells, 2);
  EXPECT_EQ(without.failed_cells, 0);
  EXPECT_EQ(without.evaluated, 30);
  EXPECT_EQ(states(), (std::map<std::string, int>{{"done", 6}, {"missing", 2}}));
  EXPECT_EQ(results::ResultsReader(rig_.path).cells("small").at(3).reason, "weights of kivi: `fit`");
  EXPECT_EQ(rig_.run({.retry_failed = true}).evaluated, 0);

  rig_.catalog.missing = nullptr;
  EXPECT_EQ(rig_.run().evaluated, 10);
  Rig healthy(folder_ / "h.db");
  (void)healthy.run();
  EXPECT_EQ(rig_.digest(), healthy.digest());
}

TEST_F(RunnerTest, WhateverTheEvaluatorThrowsIsRecorded) {
  rig_.evaluator.before_sample = [](const EvalTask& task) {
    if (task.sample_id == "qasper-1") throw std::bad_alloc();
    if (task.sample_id == "needle-3") throw 42;  // NOLINT: what is no exception must not end a sweep either
  };
  const RunSummary summary = rig_.run();
  EXPECT_EQ(summary.failed_cells, 8);
  const auto rows = results::ResultsReader(rig_.path).cells("small");
  EXPECT_EQ(rows.front().reason, "sample qasper-1: out of memory");
  EXPECT_EQ(rows.front().done_samples, 1);
  EXPECT_EQ(rows.back().reason, "sample needle-3: something thrown that is no std::exception");
}

TEST_F(RunnerTest, AResultThatCannotBeStoredCostsItsCellOnly) {
  rig_.evaluator.spoil = [](const EvalTask& task, results::SampleResult& result) {
    if (task.sample_id == "qasper-1" && result.prediction.starts_with("kivi"))
      result.values.push_back(result.values[0]);
    if (task.sample_id == "needle-1" && result.prediction.starts_with("full")) result.activity_json = "{\"a\": nan}";
  };
  EXPECT_EQ(rig_.run().failed_cells, 2);
  const auto rows = results::ResultsReader(rig_.path).cells("small");
  EXPECT_EQ(rows[3].reason, "sample qasper-1: metric token_f1 twice");
  EXPECT_EQ(rows[4].reason, "sample needle-1: \"{\"a\": nan}\" where JSON is due");
  EXPECT_EQ(states()["done"], 6);
}

TEST_F(RunnerTest, ASampleThatDoesNotFitCostsItselfAndAllOfThemTheirCells) {
  rig_.catalog.too_long = {"qasper-1", "needle-0", "needle-1", "needle-2", "needle-3", "needle-4", "needle-5"};
  for (int again = 0; again < 2; ++again) {
    const RunSummary summary = rig_.run({.retry_failed = again == 1});
    EXPECT_EQ(summary.failed_cells, 4);
    EXPECT_EQ(summary.evaluated, again == 1 ? 0 : 3 * 4);
    for (const results::CellRow& row : results::ResultsReader(rig_.path).cells("small")) {
      const bool fits = row.cell.workload == "qasper";
      EXPECT_EQ(row.state, fits ? results::CellState::done : results::CellState::failed);
      EXPECT_EQ(row.cell.planned_samples, fits ? 3 : 0);
      EXPECT_EQ(row.cell.left_out_samples, fits ? 1 : 6);
      EXPECT_EQ(row.reason.find("no sample: 6 beyond the window") == std::string::npos, fits) << row.reason;
    }
  }
}

TEST_F(RunnerTest, AModelThatDoesNotLoadFailsItsCellsAndNoOthers) {
  const std::string two_models = R"({"name": "small", "models": [{"name": "bad", "path": "bad.gguf"}, "smollm2-135m"],
    "workloads": ["qasper"], "methods": ["full", "snapkv"], "engine": {"noise_floor": 0}})";
  class OneBad final : public Evaluator {
   public:
    std::vector<results::RunInput> inputs(const ModelEntry& model) override { return good.inputs(model); }
    void begin_model(const ModelEntry& model, const EngineSettings& engine) override {
      if (model.name == "bad") throw UserError("bad.gguf: found 3 bytes, expected a checkpoint");
      good.begin_model(model, engine);
    }
    void end_model(const ModelEntry& model) override { good.end_model(model); }
    std::vector<SampleOutcome> evaluate(const EvalTask& task) override { return good.evaluate(task); }
    std::vector<results::MetricValue> cell_values(const PlannedCell&, const results::ResultsReader&) override {
      return {};
    }
    FakeEvaluator good;
  } evaluate;
  auto results = results::ResultsStore::open_or_create(rig_.path);
  const Plan plan = make_plan(parse(two_models), rig_.catalog);
  Progress progress({.style = ProgressOptions::Style::quiet, .stream = nowhere(), .now = {}});
  const RunSummary summary = run_plan(plan, evaluate, results, progress, rig_.stop);
  EXPECT_EQ(summary.failed_cells, 2);
  EXPECT_EQ(summary.evaluated, 12);
  EXPECT_EQ(results.read().cells("small").front().reason, "bad.gguf: found 3 bytes, expected a checkpoint");
}

TEST_F(RunnerTest, AnIdleMethodIsInactiveNotATie) {
  rig_.evaluator.inactive = [](const PlannedCell& cell) { return cell.record.method == "snapkv keep=0.5"; };
  const RunSummary summary = rig_.run();
  EXPECT_EQ(summary.inactive_cells, 2);
  EXPECT_EQ(states(), (std::map<std::string, int>{{"done", 6}, {"inactive", 2}}));
}

TEST_F(RunnerTest, AHigherLimitJudgesTheNewSamplesOnly) {
  (void)rig_.run();
  Rig longer(rig_.path, kSmallConfig, {.limit = 6});
  const RunSummary summary = longer.run();
  EXPECT_EQ(summary.evaluated, 8);
  EXPECT_EQ(states(), (std::map<std::string, int>{{"done", 8}}));
  Rig fresh(folder_ / "f.db", kSmallConfig, {.limit = 6});
  (void)fresh.run();
  EXPECT_EQ(longer.digest(), fresh.digest()) << "also the cells' own metrics are computed anew";
}

TEST_F(RunnerTest, ANewMethodCostsItsOwnJudgingOnly) {
  (void)rig_.run();
  std::string more = kSmallConfig;
  more.replace(more.find("\"full\""), 6, R"("full", {"name": "kivi", "bits": 4})");
  Rig longer(rig_.path, more);
  std::set<size_t> asked;
  longer.evaluator.before_sample = [&](const EvalTask& task) { asked.insert(task.cells.size()); };
  EXPECT_EQ(longer.run().evaluated, 10);
  EXPECT_EQ(asked, std::set<size_t>{1});
  Rig fresh(folder_ / "f.db", more);
  (void)fresh.run();
  EXPECT_EQ(longer.digest(), fresh.digest());
}

TEST_F(RunnerTest, AnotherProtocolSupersedesWhatWasMeasured) {
  (void)rig_.run();
  rig_.catalog.card = "none";
  EXPECT_EQ(rig_.run().evaluated, 40);
  EXPECT_EQ(results::ResultsReader(rig_.path).cells("small").size(), 8U);
  EXPECT_EQ(results::ResultsReader(rig_.path).cells("small", true).size(), 16U);
}

TEST_F(RunnerTest, TheFirstSignalStopsAfterTheSampleInWork) {
  const InterruptGuard guard;
  rig_.evaluator.before_sample = [](const EvalTask& task) {
    if (task.sample_id == "qasper-1") ::raise(SIGINT);
  };
  auto results = results::ResultsStore::open_or_create(rig_.path);
  const Plan plan = make_plan(parse(kSmallConfig), rig_.catalog);
  std::FILE* said = std::tmpfile();
  {
    Progress progress({.style = ProgressOptions::Style::lines, .stream = said, .now = {}});
    const RunSummary summary = run_plan(plan, rig_.evaluator, results, progress, InterruptGuard::flag());
    EXPECT_TRUE(summary.interrupted);
    EXPECT_EQ(summary.evaluated, 8);
  }
  std::rewind(said);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), said));
  std::fclose(said);
  EXPECT_NE(
      text.find("stopped: 8 of 40 evaluations are in " + rig_.path.string() + "; the same command goes on from there"),
      std::string::npos)
      << text;
  EXPECT_EQ(results.read().runs("small").at(0).state, results::RunState::interrupted);
}

TEST(InterruptGuard, TheSecondSignalEndsTheProcessAndTheGuardPutsHandlersBack) {
  EXPECT_EXIT(
      {
        const InterruptGuard guard;
        ::raise(SIGTERM);
        ::raise(SIGTERM);
        ::_exit(0);
      },
      ::testing::KilledBySignal(SIGTERM), "stopping after the sample in work");
  struct sigaction now {};
  ::sigaction(SIGINT, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST(InterruptGuard, ALostConnectionStopsCleanlyUnlessItIsNotToBeHeard) {
  {
    const InterruptGuard guard;
    ::raise(SIGHUP);
    EXPECT_TRUE(InterruptGuard::flag().load());
  }
  ::signal(SIGHUP, SIG_IGN);  // as nohup does
  {
    const InterruptGuard guard;
    ::raise(SIGHUP);
    EXPECT_FALSE(InterruptGuard::flag().load());
  }
  ::signal(SIGHUP, SIG_DFL);
}

}  // namespace
}  // namespace kvarena::experiment
