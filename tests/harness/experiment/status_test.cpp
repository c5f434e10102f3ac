// Progress of an experiment, from its database.

#include "harness/experiment/status.h"

#include <gtest/gtest.h>

#include "harness/results/results_store.h"
#include "tests/harness/results/support.h"

namespace kvarena::experiment {
namespace {

using results::small_cell;
using results::small_sample;

/// UTC, seconds since 1970.
constexpr int64_t kSomeday = 4102444800;

class StatusTest : public ::testing::Test {
 protected:
  std::string begin(const std::vector<results::CellRecord>& cells) {
    const std::string run = results_.begin_run({.experiment = "exp"}, {.experiment = "exp"});
    results_.upsert_cells(cells);
    return run;
  }
  void evaluate(const std::string& run, const std::string& cell, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const results::SampleResult sample = small_sample(cell, i);
      results_.commit(run, {&sample, 1});
    }
  }
  ExperimentStatus status() {
    const std::vector<ExperimentStatus> all = experiment_status(results_.read(), kSomeday);
    EXPECT_EQ(all.size(), 1U);
    return all.front();
  }

  results::TemporaryFolder folder_;
  results::ResultsStore results_ = results::ResultsStore::open_or_create(folder_ / "r.db");
};

TEST_F(StatusTest, CountsJudgementsAndCells) {
  const std::string run = begin({small_cell("a", "full", 0, 4), small_cell("b", "other", 1, 4)});
  evaluate(run, "a", 0, 3);
  const ExperimentStatus now = status();
  EXPECT_EQ(now.experiment, "exp");
  EXPECT_EQ(now.run_id, run);
  EXPECT_EQ(now.state, results::RunState::running);
  EXPECT_EQ(now.planned, 8);
  EXPECT_EQ(now.done, 3);
  EXPECT_EQ(now.left(), 5);
  EXPECT_EQ(now.by_this_run, 3);
  EXPECT_GT(now.run_s, 0);
  EXPECT_NEAR(now.seconds_left(), now.run_s / 3 * 5, 1e-6 * now.run_s);
}

TEST_F(StatusTest, WhatAFailedCellLacksIsNotLeft) {
  const std::string run = begin({small_cell("a", "full", 0, 4), small_cell("b", "other", 1, 4)});
  evaluate(run, "a", 0, 4);
  evaluate(run, "b", 0, 1);
  const results::CellFailure failure{.cell_id = "b", .reason = "it broke"};
  results_.commit(run, {}, {&failure, 1});
  const ExperimentStatus now = status();
  EXPECT_EQ(now.given_up, 3);
  EXPECT_EQ(now.left(), 0);
  EXPECT_EQ(now.seconds_left(), 0);
  ASSERT_EQ(now.failures.size(), 1U);
  EXPECT_EQ(now.failures[0].reason, "it broke");
  EXPECT_EQ(now.cells.at("failed"), 1);
}

TEST_F(StatusTest, NamesWorkloadsOfProjectMadeSamplesWhicheverRunReadThem) {
  const std::string first = begin({small_cell("a", "full", 0, 4)});
  results::RunInput input{.kind = "data",
                          .name = "qasper",
                          .detail_json = R"({"origin": "project-made sample", "instead_of": "LongBench qasper"})",
                          .model = "m"};
  results_.add_input(first, input);
  results_.finish_run(first, results::RunState::interrupted);
  begin({small_cell("a", "full", 0, 4)});
  ASSERT_EQ(status().invented.size(), 1U);
  EXPECT_EQ(status().invented[0].instead_of, "LongBench qasper");
  const std::string third = begin({small_cell("a", "full", 0, 4)});
  input.detail_json = R"({"origin": "qasper.jsonl"})";
  results_.add_input(third, input);
  EXPECT_TRUE(status().invented.empty()) << "the official file came later";
}

TEST_F(StatusTest, TimeLeftIsThatOfTheLastRun) {
  const std::string first = begin({small_cell("a", "full", 0, 4)});
  evaluate(first, "a", 0, 2);
  results_.finish_run(first, results::RunState::interrupted);
  const std::string second = begin({small_cell("a", "full", 0, 4)});
  EXPECT_LT(status().seconds_left(), 0) << "nothing was judged yet";
  evaluate(second, "a", 2, 3);
  EXPECT_EQ(status().by_this_run, 1);
  EXPECT_EQ(status().done, 3);
}

}  // namespace
}  // namespace kvarena::experiment
