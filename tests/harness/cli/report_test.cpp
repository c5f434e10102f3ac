// kvarena report and compare: what they refuse. Whole reports are made by tests/end_to_end and checked by
// tests/reports.

#include <gtest/gtest.h>

#include <fstream>

#include "harness/results/results_store.h"
#include "tests/harness/cli/check.h"

namespace kvarena::testing {
namespace {

/// A database of one method that scores so on two samples.
std::string database_of(const std::filesystem::path& path, double score, const std::string& settings = "{}") {
  auto store = results::ResultsStore::open_or_create(path);
  const std::string run = store.begin_run({.experiment = "e"}, {.experiment = "e"});
  const results::CellRecord cell{.cell_id = "c" + settings,
                                 .experiment = "e",
                                 .model = "m",
                                 .workload = "facts",
                                 .method = "mine",
                                 .method_name = "mine",
                                 .settings_json = settings,
                                 .protocol_json = R"({"metrics": "qa_f1 v1"})",
                                 .protocol_sha256 = "card",
                                 .planned_samples = 2};
  store.define_metrics(std::vector<results::MetricDefinition>{
      {.metric = "qa_f1", .unit = "fraction", .better = results::Direction::higher, .table_scale = 100}});
  store.upsert_cells({&cell, 1});
  std::vector<results::SampleResult> samples;
  for (const char* id : {"a", "b"}) {
    samples.push_back({.cell_id = cell.cell_id,
                       .sample_id = id,
                       .prompt_sha256 = id,
                       .values = {{.metric = "qa_f1", .value = score, .unit = "fraction"}}});
  }
  store.commit(run, samples);
  store.settle_cell(cell.cell_id, {});
  store.finish_run(run, results::RunState::finished);
  return path.string();
}

TEST(Compare, ExitsWithOneWhenAMeanDroppedHoweverFewTheSamples) {
  const ScratchFolder scratch;
  const std::string before = database_of(scratch / "before.db", 0.5), after = database_of(scratch / "after.db", 0);
  const Finished dropped = run_kvarena({"compare", before, after});
  EXPECT_EQ(dropped.code, 1) << dropped.err;
  EXPECT_TRUE(contains(dropped.out, "0 better, 1 worse, 0 changed, 0 the same")) << dropped.out;
  EXPECT_EQ(run_kvarena({"compare", after, before}).code, 0);
  EXPECT_EQ(run_kvarena({"compare", before, before}).code, 0);
  EXPECT_EQ(run_kvarena({"compare", before, after, "--margin", "50"}).code, 0);
  EXPECT_EQ(run_kvarena({"compare", before, after, "--margin", "50", "--fail-on-drop", "49"}).code, 1);
  EXPECT_EQ(run_kvarena({"compare", before, after, "--fail-on-drop", "50"}).code, 0);
}

TEST(Compare, RefusesOtherSettingsUnderOneLabel) {
  const ScratchFolder scratch;
  const std::string before = database_of(scratch / "before.db", 0.5, R"({"keep": 0.5})"),
                    after = database_of(scratch / "after.db", 0, R"({"keep": 0.25})");
  expect_refused(run_kvarena({"compare", before, after}), "keep: 0.5 / 0.25");
  EXPECT_EQ(run_kvarena({"compare", before, after, "--allow-unlike-cards"}).code, 1) << "a drop all the same";
}

TEST(Report, WithoutAUsableDatabaseNothingIsWritten) {
  const ScratchFolder scratch;
  std::ofstream(scratch / "notes.db") << "not a database, but somebody's notes";
  const std::string out = (scratch / "report.html").string();
  for (const std::string& database : {(scratch / "absent.db").string(), (scratch / "notes.db").string()}) {
    expect_refused(run_kvarena({"report", "--database", database, "--out", out}), database);
    expect_refused(run_kvarena({"compare", database, database}), database);
  }
  expect_refused(run_kvarena({"report", "--out", out}), "--database: found nothing");
  expect_refused(run_kvarena({"compare", "one.db"}), "AFTER: found nothing");
  EXPECT_EQ(scratch.content(), std::vector<std::string>{"notes.db"});
}

TEST(Report, FormatsAreNamedWhenOneIsUnknown) {
  expect_refused(run_kvarena({"report", "--database", "any.db", "--format", "pdf"}), "html");
  expect_refused(run_kvarena({"report", "--database", "any.db", "--out", "report.docx"}), "html");
}

}  // namespace
}  // namespace kvarena::testing
