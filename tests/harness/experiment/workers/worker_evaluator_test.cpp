// A sweep whose models live in worker processes ends as one in this process does, whatever happens to the workers.

#include "harness/experiment/workers/worker_evaluator.h"

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstdio>

#include "tests/harness/experiment/support.h"

namespace kvarena::experiment {
namespace {

using experiment::EvalTask;
using experiment::PlannedCell;
using experiment::Rig;
using experiment::RunSummary;
using kvarena::testing::TemporaryFolder;
using nlohmann::json;
using results::CellState;

constexpr const char* kGuilty = "kivi bits=2";
constexpr const char* kPlace = "qasper-2";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kRoomMib = 512;    // of which the sanitizer takes most
constexpr bool kOwnHandler = false;  // of SIGSEGV
#else
constexpr int64_t kRoomMib = 96;
constexpr bool kOwnHandler = true;
#endif
constexpr double kPatience = 1.5;  // seconds: long for an evaluator that draws numbers

class WorkerEvaluatorTest : public ::testing::Test {
 protected:
  RunSummary run(const json& breaks, const experiment::RunOptions& options = {}) {
    WorkerEvaluator evaluator(rig_.evaluator, {.words = {KVARENA_BINARY_DIR "/bin/breaking_worker"},
                                               .setup = {{"config", rig_.text}, {"breaks", breaks}},
                                               .limits = {.seconds = kPatience, .memory_bytes = kRoomMib << 20U},
                                               .on_line = [this](const std::string& line) { printed_ += line + "\n"; },
                                               .patience_s = patience_s_});
    auto results = results::ResultsStore::open_or_create(rig_.path);
    const experiment::Plan plan = experiment::make_plan(experiment::parse(rig_.text), rig_.catalog);
    Progress progress({.style = ProgressOptions::Style::quiet, .stream = rig_.sink, .now = {}});
    return experiment::run_plan(plan, evaluator, results, progress, rig_.stop, options);
  }

  static json breaks(const std::string& how) { return {{{"method", kGuilty}, {"sample", kPlace}, {"how", how}}}; }

  [[nodiscard]] std::vector<results::CellRow> cells() const { return results::ResultsReader(rig_.path).cells("small"); }

  /// The database of a run in this process in which the same cell fails for the same reason.
  std::string digest_with_failure(const std::string& reason) {
    Rig other(folder_ / "other.db");
    other.evaluator.failure = [&](const EvalTask& task, const PlannedCell& cell) {
      return cell.record.method == kGuilty && task.sample_id == kPlace ? reason : "";
    };
    (void)other.run();
    return other.digest();
  }

  /// Breaks three times: once with all methods, twice with this one alone; the third attempt succeeds.
  void expect_healthy_in_the_end(const std::string& how) {
    json rule = breaks(how);
    rule[0]["times"] = 3;
    rule[0]["counter"] = (folder_ / "times").string();
    const RunSummary summary = run(rule);
    EXPECT_EQ(summary.failed_cells, 0);
    EXPECT_EQ(summary.evaluated, 40);
    Rig healthy(folder_ / "healthy.db");
    (void)healthy.run();
    EXPECT_EQ(rig_.digest(), healthy.digest());
  }

  TemporaryFolder folder_;
  Rig rig_{folder_ / "r.db"};
  std::string printed_;
  double patience_s_ = 600;
};

TEST_F(WorkerEvaluatorTest, EndsWithTheContentOfARunInThisProcess) {
  Rig here(folder_ / "here.db");
  (void)here.run();
  const RunSummary summary = run(json::array());
  EXPECT_EQ(summary.evaluated, 40);
  EXPECT_EQ(summary.failed_cells, 0);
  EXPECT_EQ(rig_.digest(), here.digest());
  EXPECT_EQ(printed_, "");
}

struct Breakdown {
  const char* how;
  const char* reason;
  bool tells_where = false;  // it prints its frames
};

class Breakdowns : public WorkerEvaluatorTest, public ::testing::WithParamInterface<Breakdown> {};

TEST_P(Breakdowns, CostTheirOwnCellAndSayWhatHappened) {
  const RunSummary summary = run(breaks(GetParam().how));
  EXPECT_EQ(summary.failed_cells, 1);
  EXPECT_EQ(summary.evaluated, 38);
  const results::CellRow failed = cells().at(3);
  EXPECT_EQ(failed.cell.method, kGuilty);
  EXPECT_EQ(failed.state, CellState::failed);
  const std::string prefix = std::string("sample ") + kPlace + ": ";
  EXPECT_TRUE(failed.reason.starts_with(prefix + GetParam().reason)) << failed.reason;
  EXPECT_EQ(rig_.digest(), digest_with_failure(failed.reason.substr(prefix.size())));
  const std::string words = std::string("about to ") + GetParam().how + "\nand this stands on standard output\n";
  EXPECT_NE(printed_.find(words), std::string::npos) << printed_;
  ASSERT_TRUE(failed.failure_log.starts_with(words)) << failed.failure_log;
  const std::string frames = failed.failure_log.substr(words.size());
  if (GetParam().tells_where) {
    EXPECT_TRUE(frames.starts_with("innermost frames")) << frames;
    EXPECT_NE(frames.find("\n" KVARENA_BINARY_DIR "/bin/breaking_worker+0x"), std::string::npos) << frames;
  } else {
    EXPECT_EQ(frames, "");
  }

  // Asked again, without the fault, it ends as if nothing had happened.
  EXPECT_EQ(run(json::array()).evaluated, 0);
  EXPECT_EQ(run(json::array(), {.retry_failed = true}).evaluated, 2);
  Rig healthy(folder_ / "healthy.db");
  (void)healthy.run();
  EXPECT_EQ(rig_.digest(), healthy.digest());
  EXPECT_EQ(cells().at(3).failure_log, "");
}

INSTANTIATE_TEST_SUITE_P(
    All, Breakdowns,
    ::testing::Values(Breakdown{"segfault", "its worker was ended by signal 11 (Segmentation fault)", kOwnHandler},
                      Breakdown{"descend", "its worker was ended by signal 11 (Segmentation fault)", kOwnHandler},
                      Breakdown{"abort", "its worker was ended by signal 6 (Aborted)", true},
                      Breakdown{"exit", "its worker ended with exit code 3 without an answer"},
                      Breakdown{"hang", "it took longer than the 1.5 s that a sample may take", true},
                      Breakdown{"leak", "its worker held "},
                      Breakdown{"talk nonsense", "its worker sent what is no answer"},
                      Breakdown{"answer beside the question", "its worker sent what is no answer"},
                      Breakdown{"be killed", "its worker was ended by signal 9 (Killed)"}),
    [](const auto& info) {
      std::string name = info.param.how;
      std::ranges::replace(name, ' ', '_');
      return name;
    });

TEST_F(WorkerEvaluatorTest, AMethodThatFailsInOrderNeedsNoNewWorker) {
  EXPECT_EQ(run(breaks("give up")).failed_cells, 1);
  EXPECT_EQ(cells().at(3).reason, "sample qasper-2: failed by itself");
  EXPECT_EQ(cells().at(3).failure_log, "") << "nothing died";
}

TEST_F(WorkerEvaluatorTest, AHangIsToldBeforeItsLimitEndsIt) {
  patience_s_ = kPatience / 3;
  EXPECT_EQ(run(breaks("hang")).failed_cells, 1);
  for (const std::string line : {"full and 3 others on sample qasper-2 of qasper (smollm2-135m, quality) have been "
                                 "running for 1 s; after 2 s each is "
                                 "evaluated alone",
                                 "kivi bits=2 on sample qasper-2 of qasper (smollm2-135m, quality) has been running "
                                 "for 1 s; it is ended after 2 s"}) {
    const size_t first = printed_.find(line);
    ASSERT_NE(first, std::string::npos) << printed_;
    const size_t second = printed_.find(line, first + 1);
    if (second != std::string::npos) {
      EXPECT_EQ(printed_.find(line, second + 1), std::string::npos) << "told when it has taken twice as long";
    }
  }
}

TEST_F(WorkerEvaluatorTest, WhateverIsThrownCostsTheCellThatThrowsIt) {
  for (const auto& [how, reason] : {std::pair("throw", "thrown by a method"),
                                    std::pair("throw a number", "something thrown that is no std::exception")}) {
    const RunSummary summary = run(breaks(how), {.retry_failed = true});
    EXPECT_EQ(summary.failed_cells, 1) << how;
    EXPECT_EQ(summary.evaluated + summary.already_done, 38) << how;
    EXPECT_EQ(cells().at(3).reason, std::string("sample qasper-2: ") + reason);
    EXPECT_EQ(cells().at(3).cell.method, kGuilty);
  }
}

TEST_F(WorkerEvaluatorTest, AWorkerThatOthersKillIsNoFaultOfTheMethod) { expect_healthy_in_the_end("be killed"); }

TEST_F(WorkerEvaluatorTest, SeveralGuiltyMethodsAreFoundAmongTheInnocent) {
  const RunSummary summary = run({{{"method", kGuilty}, {"sample", kPlace}, {"how", "segfault"}},
                                  {{"method", "snapkv keep=0.25"}, {"sample", kPlace}, {"how", "abort"}},
                                  {{"method", "full"}, {"sample", "needle-0"}, {"how", "exit"}}});
  EXPECT_EQ(summary.failed_cells, 3);
  std::vector<std::string> failed;
  for (const auto& row : cells()) {
    if (row.state == CellState::failed) failed.push_back(row.cell.method + ", " + row.cell.workload);
  }
  EXPECT_EQ(failed, (std::vector<std::string>{"snapkv keep=0.25, qasper", "kivi bits=2, qasper", "full, needle"}));
}

TEST_F(WorkerEvaluatorTest, AProgramThatIsNoWorkerFailsTheModelWithAReason) {
  const auto config = experiment::parse(rig_.text);
  for (const auto& [program, reason] :
       {std::pair("exit 1", ""), std::pair("echo no threads; exit 1", "; it wrote: no threads")}) {
    WorkerEvaluator evaluator(rig_.evaluator,
                              {.words = {"/bin/sh", "-c", program}, .setup = {}, .limits = {}, .on_line = {}});
    try {
      evaluator.begin_model(config.models.front(), config.engine);
      FAIL() << "a program that ends at once was taken for a worker";
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), std::string("its worker ended with exit code 1 without an answer") + reason);
    }
  }
}

}  // namespace
}  // namespace kvarena::experiment
