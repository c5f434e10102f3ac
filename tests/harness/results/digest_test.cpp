#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/harness/results/support.h"

namespace kvarena::results {
namespace {

/// A database with a row in every table.
void fill(const std::filesystem::path& path) {
  auto store = ResultsStore::open_or_create(path);
  ExperimentRecord experiment{.experiment = "exp", .title = "title"};
  experiment.published = {{.model = "m",
                           .workload = "w",
                           .method = "x",
                           .metric = "f1",
                           .value = 1,
                           .upper = 2,
                           .unit = "percent",
                           .source = "paper",
                           .note = "a note"}};
  const std::string run = store.begin_run(experiment, {.experiment = "exp"});
  store.define_metrics(std::array{MetricDefinition{.metric = "bleu", .title = "BLEU"}});
  store.add_input(run, {.kind = "model", .name = "m", .sha256 = "00"});
  const std::array cells = {small_cell("a", "full"), small_cell("b", "snap", 1)};
  store.upsert_cells(cells);
  const std::array results = {small_sample("a", 0), small_sample("b", 0), small_sample("b", 1)};
  store.commit(run, results);
  store.settle_cell("b", std::array{MetricValue{.metric = "bleu", .value = 3, .unit = "percent"}});
  store.set_judges("exp", std::array{JudgeRecord{.metric = "quality", .model = "A", .question_sha256 = "00"}}, false);
  store.finish_run(run, RunState::finished);
}

std::string digest_of(const std::filesystem::path& path) { return ResultsReader(path).content_digest(); }

/// Whether a change of this column means nothing: it says when, where or how long.
bool is_circumstance(const std::string& table, const std::string& column) {
  return table == "runs" || table == "run_inputs" || column == "wall_s" || column == "run_id" || column == "at_ms" ||
         column == "failure_log" || column == "length" || column == "protocol_sha256";  // the last two repeat others
}

TEST(ContentDigest, SeesEveryColumnThatIsAResultAndNoneThatIsACircumstance) {
  const TemporaryFolder folder;
  const auto path = folder / "d.db";
  fill(path);
  const std::string before = digest_of(path);
  SQLite::Database database(path.string(), SQLite::OPEN_READWRITE);
  database.exec("PRAGMA synchronous = OFF");
  SQLite::Statement columns(database,
                            "SELECT t.name, c.name, c.type FROM sqlite_schema t, pragma_table_info(t.name) c "
                            "WHERE t.type = 'table'");
  int seen = 0;
  std::vector<std::array<std::string, 3>> list;
  while (columns.executeStep()) {
    list.push_back(
        {columns.getColumn(0).getString(), columns.getColumn(1).getString(), columns.getColumn(2).getString()});
  }
  for (const auto& [table, column, type] : list) {
    const std::string where = table + "." + column;
    const std::string changed = type == "TEXT" ? column + " || '!'" : "coalesce(" + column + ", 0) + 1";
    // Numbers of the measured clock are circumstances; the other rows of these tables are results.
    const bool has_clock = table == "sample_values" || table == "cell_values" || table == "series";
    const std::string rows = has_clock ? " WHERE clock <> 'measured'" : "";
    SQLite::Transaction attempt(database);
    ASSERT_GT(database.exec("UPDATE " + table + " SET " + column + " = " + changed + rows), 0) << where;
    attempt.commit();
    EXPECT_EQ(digest_of(path) == before, is_circumstance(table, column)) << where;
    ++seen;
    const std::string restored =
        type == "TEXT" ? "substr(" + column + ", 1, length(" + column + ") - 1)" : column + " - 1";
    database.exec("UPDATE " + table + " SET " + column + " = " + restored + rows);
    ASSERT_EQ(digest_of(path), before) << where << " is not as it was";
  }
  EXPECT_GT(seen, 80);
}

TEST(ContentDigest, IgnoresMeasuredNumbersButNotTheirNames) {
  const TemporaryFolder folder;
  const auto path = folder / "d.db";
  fill(path);
  const std::string before = digest_of(path);
  SQLite::Database database(path.string(), SQLite::OPEN_READWRITE);
  ASSERT_GT(database.exec("UPDATE sample_values SET value = value * 2 WHERE clock = 'measured'"), 0);
  EXPECT_EQ(digest_of(path), before);
  database.exec("UPDATE sample_values SET metric = 'other' WHERE clock = 'measured'");
  EXPECT_NE(digest_of(path), before);
}

TEST(ContentDigest, DoesNotDependOnTheOrderOfWriting) {
  const TemporaryFolder folder;
  const std::array cells = {small_cell("a", "full"), small_cell("b", "snap", 1)};
  std::array<std::string, 2> digests;
  for (const bool backwards : {false, true}) {
    auto store = ResultsStore::open_or_create(folder / (backwards ? "b.db" : "f.db"));
    store.upsert_cells(cells);
    for (int i = 0; i < 6; ++i) {
      const int step = backwards ? 5 - i : i;
      const std::array one = {small_sample(step % 2 == 0 ? "a" : "b", step / 2)};
      store.commit(backwards ? "x" : "y", one);
    }
    digests[backwards] = store.read().content_digest();
  }
  EXPECT_EQ(digests[0], digests[1]);
}

}  // namespace
}  // namespace kvarena::results
