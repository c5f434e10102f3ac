// A report and a comparison from real database files.

#include <gtest/gtest.h>

#include <filesystem>

#include "harness/core/error.h"
#include "harness/store/results_store.h"
#include "reports/compare.h"
#include "reports/experiment_report.h"

namespace kvarena::reports {
namespace {

namespace fs = std::filesystem;

struct MethodScores {
  std::string label;
  std::vector<double> scores;
  std::string card = R"({"metrics": "qa_f1 v1", "dtype": "bf16"})";
  bool active = true;
  std::string failure = {};
};

class ReportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("reports-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// A database with one workload and the given methods, the first of them the baseline.
  ExperimentData experiment(const std::string& file, const std::vector<MethodScores>& methods) {
    {
      auto store = store::ResultsStore::open_or_create(folder_ / file);
      std::vector<store::CellRecord> cells;
      for (size_t i = 0; i < methods.size(); ++i) {
        cells.push_back({.cell_id = methods[i].label,
                         .experiment = "e",
                         .model = "m",
                         .workload = "facts",
                         .method = methods[i].label,
                         .method_name = methods[i].label,
                         .protocol_json = methods[i].card,
                         .protocol_sha256 = "card " + methods[i].card,
                         .baseline = i == 0,
                         .position = static_cast<int64_t>(i),
                         .planned_samples = static_cast<int64_t>(methods[i].scores.size())});
      }
      const std::string run = store.begin_run({.experiment = "e", .title = "E"}, {.experiment = "e"});
      store.upsert_cells(cells);
      for (const MethodScores& method : methods) {
        if (!method.failure.empty()) {
          const store::CellFailure failure{.cell_id = method.label, .reason = method.failure};
          store.commit(run, {}, {&failure, 1});
          continue;
        }
        std::vector<store::SampleResult> results;
        for (size_t i = 0; i < method.scores.size(); ++i) {
          results.push_back({.cell_id = method.label,
                             .sample_id = "s" + std::to_string(i),
                             .sample_index = static_cast<int64_t>(i),
                             .prediction = "<i>answer</i>",
                             .active = method.active,
                             .values = {{.metric = "qa_f1", .value = method.scores[i], .unit = "fraction"},
                                        {.metric = "kept_bytes_fraction", .value = 0.5},
                                        {.metric = "kl_nats", .value = 0.1, .unit = "nats"}},
                             .series = {{.name = "kl_nats", .values = {0.0F, 0.1F, 0.2F}, .unit = "nats"}}});
        }
        store.commit(run, results);
        store.settle_cell(method.label, {});
      }
      store.finish_run(run, store::RunState::finished);
    }
    return read_experiment(store::ResultsReader(folder_ / file), "");
  }

  fs::path folder_;
};

std::vector<double> scores(int64_t n, double value, double wobble = 0) {
  std::vector<double> list;
  for (int64_t i = 0; i < n; ++i) list.push_back(value + (i % 2 == 0 ? wobble : -wobble));
  return list;
}

Table table(const Document& document, const std::string& id) {
  for (const Section& section : document.sections) {
    for (const Table& candidate : section.tables) {
      if (candidate.id == id) return candidate;
    }
  }
  throw std::runtime_error("no table " + id);
}

TEST_F(ReportTest, PairsEveryMethodWithTheBaseline) {
  const auto data = experiment(
      "a.db", {{"full", scores(40, 0.8, 0.1)}, {"lossy", scores(40, 0.6, 0.1)}, {"same", scores(40, 0.8, 0.1)}});
  const Table quality = table(experiment_report(data), "quality");
  ASSERT_EQ(quality.rows.size(), 3U);
  EXPECT_EQ(quality.rows[0].role, RowRole::baseline);
  EXPECT_NEAR(quality.rows[0].cells[1].value, 80, 1e-9);
  EXPECT_FALSE(quality.rows[0].cells[1].difference);
  ASSERT_TRUE(quality.rows[1].cells[1].difference);
  EXPECT_NEAR(quality.rows[1].cells[1].difference->value, -20, 1e-9);
  EXPECT_EQ(quality.rows[1].cells[1].difference->verdict, Verdict::worse);
  EXPECT_EQ(quality.rows[2].cells[1].difference->verdict, Verdict::within_noise);
}

TEST_F(ReportTest, FailuresAndIdleMethodsAreOutcomesNotNumbers) {
  const auto data =
      experiment("a.db", {{"full", scores(6, 0.5)},
                          {"idle", scores(6, 0.5), R"({"metrics": "qa_f1 v1", "dtype": "bf16"})", false},
                          {"broken", {}, R"({"metrics": "qa_f1 v1", "dtype": "bf16"})", true, "segfault"}});
  const Document document = experiment_report(data);
  const Table quality = table(document, "quality");
  EXPECT_EQ(quality.rows[1].cells[1].kind, CellKind::inactive);
  EXPECT_EQ(quality.rows[2].cells[1].kind, CellKind::failed);
  EXPECT_EQ(quality.rows[2].cells[1].reason, "segfault");
  EXPECT_EQ(table(document, "outcomes").rows.size(), 2U);
}

TEST_F(ReportTest, RefusesToCompareUnlikeCardsUnlessAsked) {
  const auto data = experiment(
      "a.db", {{"full", scores(6, 0.5)}, {"other", scores(6, 0.5), R"({"metrics": "qa_f1 v1", "dtype": "f32"})"}});
  try {
    (void)experiment_report(data);
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("dtype: bf16 / f32"), std::string::npos) << error.what();
  }
  const Document document = experiment_report(data, {.allow_unlike_cards = true});
  EXPECT_NE(document.introduction.back().find("dtype: bf16 / f32"), std::string::npos);
}

TEST_F(ReportTest, DrawsKlByStepAndTheTradeOff) {
  const auto data = experiment("a.db", {{"full", scores(6, 0.9)}, {"lossy", scores(6, 0.6)}});
  const std::string html = render(experiment_report(data), Format::html);
  EXPECT_NE(html.find("id=\"kl-growth\""), std::string::npos);
  EXPECT_NE(html.find("id=\"trade-off\""), std::string::npos);
  EXPECT_EQ(html.find("<i>answer</i>"), std::string::npos);
}

TEST_F(ReportTest, NamesTheExperimentsThereAre) {
  (void)experiment("a.db", {{"full", scores(3, 0.9)}});
  try {
    (void)read_experiment(store::ResultsReader(folder_ / "a.db"), "f");
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("one of: e"), std::string::npos) << error.what();
  }
}

TEST_F(ReportTest, CompareFindsAPlantedRegressionAndNothingElse) {
  const auto before = experiment("a.db", {{"full", scores(200, 0.7, 0.05)}, {"mine", scores(200, 0.6, 0.05)}});
  const auto after = experiment("b.db", {{"full", scores(200, 0.7, 0.05)}, {"mine", scores(200, 0.58, 0.05)}});
  const Comparison comparison = compare(before, after, 1.0, false);
  EXPECT_EQ(comparison.worse, 1);
  EXPECT_EQ(comparison.within_noise, 1);
  EXPECT_EQ(comparison.regressions, 1);
  EXPECT_EQ(compare(before, after, 3.0, false).regressions, 0);
  EXPECT_EQ(compare(before, before, 0, false).worse, 0);
}

TEST_F(ReportTest, CompareNeedsSomethingInCommon) {
  const auto before = experiment("a.db", {{"full", scores(3, 0.7)}});
  const auto after = experiment("b.db", {{"another", scores(3, 0.7)}});
  EXPECT_THROW((void)compare(before, after, 0, false), UserError);
}

}  // namespace
}  // namespace kvarena::reports
