// Comparisons of two databases, and histories of one.

#include "reports/compare.h"

#include <gtest/gtest.h>

#include "harness/core/error.h"
#include "reports/history.h"
#include "tests/reports/stored_experiment.h"

namespace kvarena::reports {
namespace {

TEST_F(ReportTest, CompareFindsAPlantedRegressionAndNothingElse) {
  const auto before = experiment("a.db", {{"full", scores(200, 0.7, 0.05)}, {"mine", scores(200, 0.6, 0.05)}});
  const auto after = experiment("b.db", {{"full", scores(200, 0.7, 0.05)}, {"mine", scores(200, 0.58, 0.05)}});
  const Comparison comparison = compare(before, after, {.margin = 1});
  EXPECT_EQ(comparison.worse, 1);
  EXPECT_EQ(comparison.same, 1);
  EXPECT_EQ(comparison.regressions, 1);
  EXPECT_EQ(compare(before, after, {.margin = 2}).regressions, 0) << "by two points, which is no more than two";
  EXPECT_EQ(compare(before, after, {.margin = 3}).changed, 1);
  EXPECT_EQ(compare(before, after, {.margin = 1, .fail_on_drop = 3}).regressions, 0);
  EXPECT_EQ(compare(after, before, {}).better, 1);
  const Comparison alike = compare(before, before, {});
  EXPECT_EQ(alike.same, 2);
  EXPECT_NE(render(alike.document, Format::markdown).find("2 the same; 0 regressions"), std::string::npos);
  ASSERT_EQ(alike.document.provenance.size(), 2U) << "which program made either run";
  ExperimentData unread = before;
  for (CellData& cell : unread.cells) cell.answers.reset();
  EXPECT_THROW((void)compare(unread, after, {}), InternalError) << "it would miss changed answers";
}

TEST_F(ReportTest, CompareCallsAChangeAChangeHoweverFewSamplesShowIt) {
  const std::vector<double> half = scores(2, 0.5, 0.5);
  MethodScores reworded{"reworded", half};
  const auto before = experiment("a.db", {{"full", half}, {"h2o", half}, reworded});
  reworded.answer = "the answer in other words";
  const auto after = experiment("b.db", {{"full", half}, {"h2o", {0.0, 0.0}}, reworded});
  const Comparison comparison = compare(before, after, {});
  EXPECT_EQ(comparison.same, 1);
  EXPECT_EQ(comparison.worse, 1) << "50 to 0 on two samples";
  EXPECT_EQ(comparison.changed, 1) << "other words of the same score";
  EXPECT_EQ(comparison.regressions, 1);
  const Table shown = table(comparison.document, "comparison");
  ASSERT_EQ(shown.rows.size(), 2U) << "what is the same is counted, not listed";
  const std::vector<TableCell>& h2o = shown.rows[0].cells;
  EXPECT_EQ(h2o[4].difference->verdict, Verdict::worse);
  const auto samples = [&](size_t row) {
    std::vector<double> counts;
    for (size_t at = 5; at < 9; ++at) counts.push_back(shown.rows[row].cells[at].value);
    return counts;
  };
  EXPECT_EQ(samples(0), (std::vector<double>{0, 1, 1, 0}));
  EXPECT_EQ(samples(1), (std::vector<double>{0, 0, 2, 2}));
  EXPECT_EQ(shown.rows[1].cells[9].text, "changed");
  EXPECT_EQ(compare(before, after, {.fail_on_drop = 50}).regressions, 0);
}

TEST_F(ReportTest, CompareRefusesOtherSettingsUnderOneLabel) {
  MethodScores half{"H2O, half", scores(4, 0.5)};
  half.settings = R"({"keep": 0.5})";
  const auto before = experiment("a.db", {{"full", scores(4, 0.5)}, half});
  half.settings = R"({"keep": 0.25})";
  half.scores = scores(4, 0.0);
  const auto after = experiment("b.db", {{"full", scores(4, 0.5)}, half});
  try {
    (void)compare(before, after, {});
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    const std::string text = error.what();
    for (const char* part : {"H2O, half, facts", "keep: 0.5 / 0.25", "--allow-unlike-cards"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_EQ(compare(before, after, {.allow_unlike = true}).worse, 1);
}

TEST_F(ReportTest, CompareNamesMethodsOfOneRunAlone) {
  const auto before = experiment("a.db", {{"full", scores(4, 0.5)}, {"H2O, half", scores(4, 0.5)}});
  const auto after = experiment("b.db", {{"full", scores(4, 0.5)}, {"H2O, half [keep=0.25]", scores(4, 0.0)}});
  const std::vector<std::string> said = compare(before, after, {}).document.introduction;
  ASSERT_EQ(said.size(), 2U);
  EXPECT_EQ(said[1],
            "Not compared, for they have scores before alone: “H2O, half”. Not compared, for they have scores after "
            "alone: “H2O, half [keep=0.25]”.");
  EXPECT_EQ(compare(before, before, {}).document.introduction.size(), 1U);
}

TEST_F(ReportTest, CompareCountsACellThatFailedAsARegression) {
  const std::string card = R"({"metrics": "qa_f1 v1", "dtype": "bf16"})";
  const auto before = experiment("a.db", {{"full", scores(4, 0.5)}, {"mine", scores(4, 0.5)}});
  const auto after = experiment("b.db", {{"full", scores(4, 0.5)}, {"mine", {}, card, true, "segfault"}});
  const Comparison comparison = compare(before, after, {.margin = 100});
  EXPECT_EQ(comparison.failed, 1);
  EXPECT_EQ(comparison.regressions, 1);
  EXPECT_EQ(table(comparison.document, "comparison").rows[0].cells[4].reason, "segfault");
}

TEST_F(ReportTest, HistoryShowsWhatChangedSinceTheRunBefore) {
  const auto with = [&](const std::string& file, double mine) {
    return NamedRun{file, experiment(file, {{"full", scores(200, 0.7, 0.05)}, {"mine", scores(200, mine, 0.05)}})};
  };
  const Document document = history({with("a.db", 0.6), with("b.db", 0.6), with("c.db", 0.58)});
  const Table shown = table(document, "history-m-facts");
  ASSERT_EQ(shown.rows.size(), 2U);
  const TableRow& mine = shown.rows[1];
  EXPECT_FALSE(mine.cells[1].difference) << "there is nothing before the first run";
  EXPECT_FALSE(mine.cells[2].difference) << "nothing changed";
  EXPECT_EQ(mine.cells[3].difference->verdict, Verdict::worse);
  EXPECT_NEAR(mine.cells[3].difference->value, -2, 1e-9);
  EXPECT_EQ(document.sections[0].charts.size(), 1U);
  EXPECT_FALSE(render(document, Format::html).empty());
  EXPECT_THROW((void)history({with("d.db", 0.6)}), UserError);
}

TEST_F(ReportTest, HistoryMarksOtherSettingsInsteadOfComparing) {
  const auto with = [&](const std::string& file, double score, const std::string& settings) {
    MethodScores mine{"mine", scores(6, score)};
    mine.settings = settings;
    return NamedRun{file, experiment(file, {{"full", scores(6, 0.7)}, mine})};
  };
  const Table shown =
      table(history({with("a.db", 0.6, R"({"keep": 0.5})"), with("b.db", 0.2, R"({"keep": 0.1})")}), "history-m-facts");
  const TableCell& later = shown.rows[1].cells[2];
  EXPECT_FALSE(later.difference);
  ASSERT_EQ(later.notes.size(), 1U);
  EXPECT_EQ(shown.footnotes.at(later.notes[0]), "Other settings than in the run before: keep: 0.5 / 0.1.");
}

TEST_F(ReportTest, CompareNeedsSomethingInCommon) {
  const auto before = experiment("a.db", {{"full", scores(3, 0.7)}});
  const auto after = experiment("b.db", {{"another", scores(3, 0.7)}});
  EXPECT_THROW((void)compare(before, after, {}), UserError);
}

}  // namespace
}  // namespace kvarena::reports
