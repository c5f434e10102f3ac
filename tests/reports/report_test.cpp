// A report and a comparison from real database files.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

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
  std::string model = "m";
  bool baseline = false;                    // beside the first, for a second model
  store::Clock clock = store::Clock::none;  // of one more value, "time_to_first_token_ms"
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
  ExperimentData experiment(const std::string& file, const std::vector<MethodScores>& methods,
                            const std::vector<store::PublishedValue>& published = {}) {
    {
      auto store = store::ResultsStore::open_or_create(folder_ / file);
      std::vector<store::CellRecord> cells;
      for (size_t i = 0; i < methods.size(); ++i) {
        cells.push_back({.cell_id = methods[i].model + methods[i].label,
                         .experiment = "e",
                         .model = methods[i].model,
                         .workload = "facts",
                         .method = methods[i].label,
                         .method_name = methods[i].label,
                         .protocol_json = methods[i].card,
                         .protocol_sha256 = "card " + methods[i].card,
                         .baseline = i == 0 || methods[i].baseline,
                         .position = static_cast<int64_t>(i),
                         .planned_samples = static_cast<int64_t>(methods[i].scores.size())});
      }
      const std::string run =
          store.begin_run({.experiment = "e", .title = "E", .published = published}, {.experiment = "e"});
      store.upsert_cells(cells);
      for (const MethodScores& method : methods) {
        if (!method.failure.empty()) {
          const store::CellFailure failure{.cell_id = method.model + method.label, .reason = method.failure};
          store.commit(run, {}, {&failure, 1});
          continue;
        }
        std::vector<store::SampleResult> results;
        for (size_t i = 0; i < method.scores.size(); ++i) {
          results.push_back({.cell_id = method.model + method.label,
                             .sample_id = "s" + std::to_string(i),
                             .sample_index = static_cast<int64_t>(i),
                             .prediction = "<i>answer</i>",
                             .active = method.active,
                             .values = {{.metric = "qa_f1", .value = method.scores[i], .unit = "fraction"},
                                        {.metric = "kept_bytes_fraction", .value = 0.5},
                                        {.metric = "resident_bytes", .value = 1000, .unit = "bytes"},
                                        {.metric = "wait_ms", .value = 7, .unit = "ms", .clock = method.clock},
                                        {.metric = "kl_nats", .value = 0.1, .unit = "nats"}},
                             .series = {{.name = "kl_nats", .values = {0.0F, 0.1F, 0.2F}, .unit = "nats"}}});
        }
        store.commit(run, results);
        store.settle_cell(method.model + method.label, {});
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

TEST_F(ReportTest, AFewSamplesProveNothing) {
  const auto data = experiment("a.db", {{"full", scores(1, 1.0)}, {"lossy", scores(1, 0.0)}});
  const Table quality = table(experiment_report(data), "quality");
  EXPECT_FALSE(quality.rows[1].cells[1].interval);
  EXPECT_EQ(quality.rows[1].cells[1].difference->verdict, Verdict::within_noise);
  const auto four = experiment("b.db", {{"full", scores(4, 1.0)}, {"lossy", scores(4, 0.0)}});
  EXPECT_EQ(table(experiment_report(four), "quality").rows[1].cells[1].difference->verdict, Verdict::within_noise);
  const auto eight = experiment("c.db", {{"full", scores(8, 1.0)}, {"lossy", scores(8, 0.0)}});
  EXPECT_EQ(table(experiment_report(eight), "quality").rows[1].cells[1].difference->verdict, Verdict::worse);
}

TEST_F(ReportTest, AnIdleMethodEntersNoTableOfNumbersAndNoChart) {
  const auto data =
      experiment("a.db", {{"full", scores(6, 0.9)},
                          {"lossy", scores(6, 0.6)},
                          {"idle", scores(6, 0.9), R"({"metrics": "qa_f1 v1", "dtype": "bf16"})", false}});
  const Document document = experiment_report(data);
  EXPECT_EQ(table(document, "memory").rows.size(), 2U);
  for (const Section& section : document.sections) {
    for (const Chart& chart : section.charts) EXPECT_EQ(chart.spec.find("idle"), std::string::npos) << chart.id;
  }
}

TEST_F(ReportTest, ModelsStayApart) {
  const std::string card = R"({"metrics": "qa_f1 v1", "dtype": "bf16"})";
  const auto data = experiment("a.db", {{"full", scores(20, 0.9)},
                                        {"lossy", scores(20, 0.7)},
                                        {"full", scores(20, 0.5), card, true, "", "n", true},
                                        {"lossy", scores(20, 0.5), card, true, "", "n"}});
  const Document document = experiment_report(data);
  EXPECT_NEAR(table(document, "quality-m").rows[1].cells[1].difference->value, -20, 1e-9);
  EXPECT_NEAR(table(document, "quality-n").rows[1].cells[1].value, 50, 1e-9);
  EXPECT_NEAR(table(document, "quality-n").rows[1].cells[1].difference->value, 0, 1e-9);
  EXPECT_EQ(compare(data, data, 0, false).within_noise, 4);
}

TEST_F(ReportTest, ModelledTimesStandUnderANameOfTheirOwn) {
  const std::string card = R"({"metrics": "qa_f1 v1", "dtype": "bf16"})";
  const auto data = experiment("a.db", {{"full", scores(3, 0.9), card, true, "", "m", false, store::Clock::measured},
                                        {"fast", scores(3, 0.9), card, true, "", "m", false, store::Clock::modelled}});
  EXPECT_EQ(data.cells[0].numbers("wait_ms").size(), 3U);
  EXPECT_TRUE(data.cells[1].numbers("wait_ms").empty());
  EXPECT_EQ(data.cells[1].numbers("wait_ms (modelled)").size(), 3U);
}

TEST_F(ReportTest, PublishedValuesStandBesideOurs) {
  const auto published = [](const std::string& method, double value) {
    return store::PublishedValue{.model = "m",
                                 .workload = "facts",
                                 .method = method,
                                 .metric = "qa_f1",
                                 .value = value,
                                 .unit = "percent",
                                 .source = "table 1"};
  };
  const auto data = experiment("a.db", {{"full", scores(20, 0.8)}, {"lossy", scores(20, 0.6, 0.2)}},
                               {published("full", 80.0), published("lossy", 63.0), published("absent", 10.0)});
  std::map<std::string, std::vector<TableCell>> rows;
  for (const TableRow& row : table(experiment_report(data), "published").rows) rows[row.cells[0].text] = row.cells;
  EXPECT_EQ(rows["full"][6].text, "match");
  EXPECT_NEAR(rows["lossy"][4].value, 60, 1e-9);
  EXPECT_NEAR(rows["lossy"][5].value, -3, 1e-9);
  EXPECT_EQ(rows["lossy"][6].text, "within interval");
  EXPECT_EQ(rows["absent"][6].text, "not comparable: no value here");
}

}  // namespace
}  // namespace kvarena::reports
