// The views, and the queries printed in docs/results-database.md, return what the page says.

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include <array>

#include "harness/core/files.h"
#include "tests/harness/results/support.h"

namespace kvarena::results {
namespace {

class Queries : public ::testing::Test {
 protected:
  static std::string fill(const std::filesystem::path& path) {
    auto store = ResultsStore::open_or_create(path);
    ExperimentRecord experiment{.experiment = "exp"};
    experiment.published = {{.model = "tiny",
                             .workload = "qa",
                             .method = "snap",
                             .metric = "token_f1",
                             .value = 0.7,
                             .unit = "fraction",
                             .source = "paper, table 1",
                             .note = ""}};
    const std::string run = store.begin_run(experiment, {.experiment = "exp"});
    store.upsert_cells(std::array{small_cell("a", "full"), small_cell("b", "snap", 1), small_cell("old", "gone", 2),
                                  small_cell("c", "bad", 3)});
    const std::array scores = {0.25, 0.5, 0.75};
    for (int i = 0; i < 3; ++i) {
      store.commit(
          run, std::array{small_sample("a", i, 1.0), small_sample("b", i, scores.at(i)), small_sample("old", i, 9.0)});
    }
    store.commit(run, {}, std::array{CellFailure{.cell_id = "c", .sample_id = "s0", .reason = "it threw"}});
    for (const char* cell : {"a", "b"}) store.settle_cell(cell, {});
    store.settle_cell("b", std::array{MetricValue{.metric = "bleu", .value = 33, .unit = "percent"}});
    store.upsert_cells(std::array{small_cell("gone-too", "gone", 2)});  // supersedes "old"
    return path.string();
  }

  std::string ask(const std::string& sql) { return database_.execAndGet(sql).getString(); }
  int count(const std::string& from) { return database_.execAndGet("SELECT count(*) FROM " + from).getInt(); }

  TemporaryFolder folder_;
  SQLite::Database database_{fill(folder_ / "q.db")};
};

TEST_F(Queries, ScoresAreMeansOverSamplesWithTheirSpread) {
  EXPECT_EQ(ask("SELECT mean || ' ' || n || ' ' || variance || ' ' || lowest || ' ' || highest || ' ' || unit "
                "FROM v_scores WHERE method = 'snap' AND metric = 'token_f1'"),
            "0.5 3 0.0625 0.25 0.75 fraction");
  EXPECT_EQ(ask("SELECT mean || ' ' || n FROM v_scores WHERE method = 'snap' AND metric = 'bleu'"), "33.0 3");
  EXPECT_EQ(count("v_scores WHERE method = 'gone'"), 0) << "superseded cells have no score";
  EXPECT_EQ(count("v_scores WHERE method = 'bad'"), 0);
}

TEST_F(Queries, PairsStandBesideTheBaselineOfTheSameSample) {
  EXPECT_EQ(count("v_paired WHERE metric = 'token_f1'"), 3);
  EXPECT_EQ(ask("SELECT method || ' ' || baseline || ' ' || difference || ' ' || comparable FROM v_paired "
                "WHERE metric = 'token_f1' AND sample_id = 's0'"),
            "snap full -0.75 1");
  SQLite::Database(database_.getFilename(), SQLite::OPEN_READWRITE)
      .exec("UPDATE samples SET prompt_sha256 = 'other' WHERE cell_id = 'b' AND sample_id = 's0'");
  EXPECT_EQ(ask("SELECT comparable FROM v_paired WHERE metric = 'token_f1' AND sample_id = 's0'"), "0");
}

TEST_F(Queries, FailuresPublishedValuesAndProgressAreOneLineAway) {
  EXPECT_EQ(ask("SELECT method || ': ' || reason FROM v_failures"), "bad: sample s0: it threw");
  EXPECT_EQ(ask("SELECT published || ' ' || reproduced || ' ' || n FROM v_published"), "0.7 0.5 3");
  EXPECT_EQ(ask("SELECT done_samples || '/' || planned_samples || ' ' || state FROM v_cells WHERE method = 'snap'"),
            "3/3 done");
  EXPECT_EQ(count("v_samples"), 6);
}

TEST_F(Queries, EveryQueryOfTheReadmeRuns) {
  const std::string text = read_file(std::filesystem::path(KVARENA_SOURCE_DIR) / "docs/results-database.md");
  constexpr std::string_view kOpen = "```sql\n";
  int queries = 0;
  for (size_t at = text.find(kOpen); at != std::string::npos; at = text.find(kOpen, at + 1)) {
    const size_t begin = at + kOpen.size();
    const std::string sql = text.substr(begin, text.find("```", begin) - begin);
    SQLite::Statement statement(database_, sql);
    while (statement.executeStep()) {
    }
    ++queries;
  }
  EXPECT_GE(queries, 6);
}

}  // namespace
}  // namespace kvarena::results
