// Databases that agree become one; those that contradict each other stay as they are.

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include <set>

#include "harness/core/error.h"
#include "tests/harness/results/support.h"
#include "tests/support/error_of.h"

namespace kvarena::results {
namespace {

class MergeTest : public ::testing::Test {
 protected:
  /// A database with samples `first` .. `last` - 1 of the cells "a" and "b", of six planned ones each.
  std::filesystem::path part(const std::string& name, int64_t first, int64_t last, const std::string& config = "{}") {
    const auto path = folder_ / name;
    auto store = ResultsStore::open_or_create(path);
    const std::string run = store.begin_run({.experiment = "exp", .title = "An experiment", .config_json = config}, {});
    store.define_metrics(std::array{MetricDefinition{.metric = "token_f1", .title = "F1", .unit = "fraction"}});
    store.upsert_cells(std::array{small_cell("a", "full", 0, 6), small_cell("b", "other", 1, 6)});
    for (const char* cell : {"a", "b"}) {
      for (int64_t i = first; i < last; ++i) store.commit(run, std::array{small_sample(cell, i)});
    }
    return path;
  }

  void change(const std::filesystem::path& path, const std::string& sql) {
    SQLite::Database database(path.string(), SQLite::OPEN_READWRITE);
    ASSERT_GT(database.exec(sql), 0) << sql;
  }

  TemporaryFolder folder_;
};

TEST_F(MergeTest, OverlappingPartsThatAgreeBecomeOne) {
  const auto whole = part("whole.db", 0, 6);
  auto into = ResultsStore::open_or_create(folder_ / "into.db");
  EXPECT_EQ(into.merge(part("first.db", 0, 4)).samples, 8);
  const MergeSummary second = into.merge(part("second.db", 2, 6));
  EXPECT_EQ(second.samples, 4);
  EXPECT_EQ(second.there, 4);
  EXPECT_EQ(second.ended, 2);
  const auto rows = into.read().cells("exp");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].state, CellState::done);
  EXPECT_EQ(rows[0].done_samples, 6);
  EXPECT_DOUBLE_EQ(rows[0].wall_s, 6 * 0.25);
  EXPECT_EQ(into.read().runs("exp").size(), 2U);
  auto other = ResultsStore::open_or_create(folder_ / "other.db");
  (void)other.merge(whole);
  EXPECT_EQ(into.read().content_digest(), other.read().content_digest());
}

TEST_F(MergeTest, ContradictionsAreRefusedAndChangeNothing) {
  auto into = ResultsStore::open_or_create(folder_ / "into.db");
  (void)into.merge(part("first.db", 0, 3));
  const std::string before = into.read().content_digest();
  const auto refused = [&](const std::filesystem::path& path, const std::string& message) {
    try {
      (void)into.merge(path);
      ADD_FAILURE() << "merged although: " << message;
    } catch (const UserError& error) {
      const std::string what = error.what();
      EXPECT_TRUE(what.starts_with(path.string())) << what;
      EXPECT_NE(what.find(message), std::string::npos) << what;
    }
    EXPECT_EQ(into.read().content_digest(), before);
  };
  refused(part("config.db", 3, 6, R"({"engine": 1})"), "experiment exp made from another config");
  const std::array<std::array<std::string, 3>, 6> changes = {{
      {"prediction", "UPDATE samples SET prediction = 'else' WHERE cell_id = 'b' AND sample_id = 's2'",
       "cell b, sample s2 with another answer"},
      {"value", "UPDATE sample_values SET value = 0.75 WHERE cell_id = 'a' AND clock = 'none' AND sample_id = 's1'",
       "cell a, sample s1 with other values"},
      {"lacking", "DELETE FROM sample_values WHERE cell_id = 'a' AND clock = 'none' AND sample_id = 's1'",
       "cell a, sample s1 with other values"},
      {"series", "UPDATE series SET values_json = '[1,2,3]' WHERE cell_id = 'a' AND sample_id = 's0'",
       "cell a, sample s0 with other values"},
      {"event", "UPDATE events SET data_json = '{}' WHERE cell_id = 'b' AND sample_id = 's0'",
       "cell b, sample s0 with other values"},
      {"metric", "UPDATE metrics SET unit = 'percent'", "metric token_f1 with another meaning"},
  }};
  for (const auto& [name, sql, message] : changes) {
    const auto path = part(name + ".db", 0, 5);
    change(path, sql);
    refused(path, message);
  }
  const auto timed = part("timed.db", 0, 3);
  change(timed, "UPDATE sample_values SET value = 99 WHERE clock = 'measured'");
  EXPECT_EQ(into.merge(timed).samples, 0) << "a time is no contradiction";
  EXPECT_EQ(into.read().content_digest(), before);
}

TEST_F(MergeTest, AFailureInOnePartIsTheCells) {
  const auto first = part("first.db", 0, 3);
  const auto second = part("second.db", 3, 6);
  for (const auto& [path, reason] : {std::pair{first, "z"}, std::pair{second, "a"}}) {
    auto store = ResultsStore::open_or_create(path);
    store.commit("run", {}, std::array{CellFailure{.cell_id = "b", .sample_id = "", .reason = reason, .log = reason}});
  }
  for (const bool swapped : {false, true}) {
    auto into = ResultsStore::open_or_create(folder_ / fmt::format("into{}.db", swapped));
    (void)into.merge(swapped ? second : first);
    (void)into.merge(swapped ? first : second);
    const auto failed = into.read().cells("exp").at(1);
    EXPECT_EQ(failed.state, CellState::failed);
    EXPECT_EQ(failed.reason, "a");
    EXPECT_EQ(failed.failure_log, "a");
    EXPECT_EQ(failed.done_samples, 6);
    EXPECT_EQ(into.read().cells("exp").at(0).state, CellState::done);
  }
}

TEST_F(MergeTest, MarksComeAlongFromAPartThatWasJudgedFirstAndNeverOfTwoJudges) {
  const auto judged = [&](const std::string& name, const std::string& model, double mark) {
    const auto path = part(name, 0, 3);
    auto store = ResultsStore::open_or_create(path);
    store.set_judges("exp", std::array{JudgeRecord{.metric = "quality", .model = model, .question_sha256 = "q"}},
                     false);
    store.add_marks({.cell_id = "a", .sample_id = "s0"}, std::array{MetricValue{.metric = "quality", .value = mark}});
    return path;
  };
  const auto plain = part("plain.db", 0, 3), first = judged("first.db", "A", 0.5);
  std::set<std::string> digests;
  for (const bool swapped : {false, true}) {
    auto into = ResultsStore::open_or_create(folder_ / fmt::format("into{}.db", swapped));
    (void)into.merge(swapped ? first : plain);
    (void)into.merge(swapped ? plain : first);
    EXPECT_EQ(into.read().values("a", "quality").size(), 1U);
    EXPECT_EQ(into.read().judges("exp").size(), 1U);
    digests.insert(into.read().content_digest());
  }
  EXPECT_EQ(digests.size(), 1U);
  auto into = ResultsStore::open_or_create(folder_ / "into.db");
  (void)into.merge(first);
  EXPECT_NE(testing::error_of([&] { (void)into.merge(judged("second.db", "B", 0.5)); }).find("by another judge"),
            std::string::npos);
}

TEST_F(MergeTest, AMethodWhoseWeightsAreMissingStaysSo) {
  const auto first = part("first.db", 0, 0), second = part("second.db", 0, 0);
  for (const auto& path : {first, second}) ResultsStore::open_or_create(path).mark_missing("b", "weights of b");
  auto into = ResultsStore::open_or_create(folder_ / "into.db");
  (void)into.merge(first);
  EXPECT_EQ(into.merge(second).ended, 1);
  EXPECT_EQ(into.read().cell("b")->state, CellState::missing);
  EXPECT_EQ(into.read().cell("b")->reason, "weights of b");
}

TEST_F(MergeTest, TheSameLabelsUnderOtherConditionsAreRefused) {
  auto into = ResultsStore::open_or_create(folder_ / "into.db");
  (void)into.merge(part("first.db", 0, 3));
  const auto path = folder_ / "other-data.db";
  {
    auto store = ResultsStore::open_or_create(path);
    (void)store.begin_run({.experiment = "exp", .title = "An experiment", .config_json = "{}"}, {});
    store.upsert_cells(std::array{small_cell("c", "full", 0, 6)});
  }
  EXPECT_THROW((void)into.merge(path), UserError);
  EXPECT_EQ(into.read().cells("exp").size(), 2U);
  {
    auto store = ResultsStore::open_or_create(path);
    store.upsert_cells(std::array{small_cell("a", "full", 0, 6)});  // under the conditions of the other part again
  }
  (void)into.merge(path);
  EXPECT_EQ(into.read().cells("exp").size(), 2U);
}

TEST_F(MergeTest, OnlySamplesOfThePlanEndACell) {
  const auto path = part("longer.db", 3, 6);  // then the plan was cut to three samples, which are others
  { ResultsStore::open_or_create(path).upsert_cells(std::array{small_cell("a", "full", 0, 3)}); }
  auto into = ResultsStore::open_or_create(folder_ / "into.db");
  (void)into.merge(path);
  EXPECT_EQ(into.read().cell("a")->state, CellState::running);
}

TEST_F(MergeTest, AServingCellEndsWithItsOwnValues) {
  CellRecord cell = small_cell("s", "full", 0, 2);
  cell.kind = CellKind::serving;
  const auto serve = [&](const std::string& name, bool settled) {
    auto store = ResultsStore::open_or_create(folder_ / name);
    const std::string run = store.begin_run({.experiment = "exp", .title = "", .config_json = "{}"}, {});
    store.upsert_cells(std::array{cell});
    store.commit(run, std::array{small_sample("s", 0), small_sample("s", 1)});
    if (settled) store.settle_cell("s", std::array{MetricValue{.metric = "goodput", .value = 2, .unit = "requests/s"}});
    return folder_ / name;
  };
  const auto killed = serve("killed.db", false);
  const auto ended = serve("ended.db", true);
  std::set<std::string> digests;
  for (const bool swapped : {false, true}) {
    auto into = ResultsStore::open_or_create(folder_ / fmt::format("into{}.db", swapped));
    (void)into.merge(swapped ? ended : killed);
    EXPECT_EQ(into.read().cell("s")->state, swapped ? CellState::done : CellState::running);
    (void)into.merge(swapped ? killed : ended);
    EXPECT_EQ(into.read().cell("s")->state, CellState::done);
    EXPECT_EQ(into.read().cell_values("s").size(), 1U);
    digests.insert(into.read().content_digest());
  }
  EXPECT_EQ(digests.size(), 1U);
}

TEST_F(MergeTest, WhatIsNoPartIsRefused) {
  auto into = ResultsStore::open_or_create(folder_ / "into.db");
  EXPECT_THROW((void)into.merge(folder_ / "none.db"), UserError);
  EXPECT_THROW((void)into.merge(folder_ / "into.db"), UserError);
}

}  // namespace
}  // namespace kvarena::results
