// A report and a comparison from real database files.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/error.h"
#include "harness/results/results_store.h"
#include "reports/compare.h"
#include "reports/equal_bytes.h"
#include "reports/experiment_report.h"
#include "reports/history.h"
#include "reports/report_charts.h"
#include "reports/sections.h"
#include "reports/settings_charts.h"
#include "reports/timing.h"

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
  bool baseline = false;                        // beside the first, for a second model
  results::Clock clock = results::Clock::none;  // clock of one more value, "wait_ms"
  results::CellKind kind = results::CellKind::quality;
  std::string metric = "qa_f1";  // metric of the scores
  results::Storage storage = results::Storage::real;
  std::string prompt = "prompt";             // the samples' hashes begin so
  std::vector<results::Series> series = {};  // further series of every sample
  std::string name = {};                     // that it is registered under; the label unless given
  std::string settings = "{}";
  double kept = 0.5;       // share of full KV's bytes
  std::vector<float> itl;  // repeats of the time of a token
  double accepted = 0;     // accepted tokens of every sample's rounds; 0: no value
  std::string answer = "<i>answer</i>";
  std::vector<double> calls = {};  // golden calls of every sample; none: no value
};

const std::vector<results::MetricDefinition> kDefinitions = {
    {.metric = "qa_f1", .unit = "fraction", .better = results::Direction::higher, .table_scale = 100},
    {.metric = "perplexity", .unit = "perplexity", .better = results::Direction::lower},
    {.metric = "time_to_first_token_ms", .unit = "ms", .better = results::Direction::lower},
    {.metric = "inter_token_latency_ms", .unit = "ms", .better = results::Direction::lower},
    {.metric = "kept_bytes_fraction", .unit = "fraction", .better = results::Direction::lower, .table_scale = 100}};

std::string id_of(const MethodScores& method) {
  return method.model + method.label + std::string(results::name(method.kind));
}

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
                            const std::vector<results::PublishedValue>& published = {},
                            const std::string& origin = "") {
    {
      auto store = results::ResultsStore::open_or_create(folder_ / file);
      std::vector<results::CellRecord> cells;
      for (size_t i = 0; i < methods.size(); ++i) {
        cells.push_back({.cell_id = id_of(methods[i]),
                         .experiment = "e",
                         .kind = methods[i].kind,
                         .model = methods[i].model,
                         .workload = "facts",
                         .method = methods[i].label,
                         .method_name = methods[i].name.empty() ? methods[i].label : methods[i].name,
                         .settings_json = methods[i].settings,
                         .protocol_json = methods[i].card,
                         .protocol_sha256 = "card " + methods[i].card,
                         .baseline = methods[i].label == methods[0].label || methods[i].baseline,
                         .position = static_cast<int64_t>(i),
                         .planned_samples = static_cast<int64_t>(methods[i].scores.size())});
      }
      const std::string run =
          store.begin_run({.experiment = "e", .title = "E", .published = published}, {.experiment = "e"});
      store.define_metrics(kDefinitions);
      store.upsert_cells(cells);
      for (const MethodScores& method : methods) {
        if (!method.failure.empty()) {
          const results::CellFailure failure{.cell_id = id_of(method), .reason = method.failure};
          store.commit(run, {}, {&failure, 1});
          continue;
        }
        std::vector<results::SampleResult> results;
        for (size_t i = 0; i < method.scores.size(); ++i) {
          results.push_back({.cell_id = id_of(method),
                             .sample_id = "s" + std::to_string(i),
                             .sample_index = static_cast<int64_t>(i),
                             .prompt_sha256 = method.prompt + std::to_string(i),
                             .prediction = method.answer,
                             .active = method.active,
                             .values = {{.metric = method.metric,
                                         .value = method.scores[i],
                                         .unit = method.metric == "qa_f1" ? "fraction" : method.metric},
                                        {.metric = "kept_bytes_fraction",
                                         .value = method.kept,
                                         .unit = "fraction",
                                         .storage = method.storage},
                                        {.metric = "resident_bytes", .value = 1000, .unit = "bytes"},
                                        {.metric = "wait_ms", .value = 7, .unit = "ms", .clock = method.clock},
                                        {.metric = "kl_nats", .value = 0.1, .unit = "nats"}},
                             .series = {{.name = "kl_nats", .values = {0.0F, 0.1F, 0.2F}, .unit = "nats"},
                                        {.name = "time_to_first_token_ms",
                                         .values = {10.0F, 11.0F, 12.0F, 40.0F},
                                         .unit = "ms",
                                         .clock = results::Clock::measured}}});
          std::ranges::copy(method.series, std::back_inserter(results.back().series));
          if (!method.itl.empty()) {
            results.back().series.push_back({.name = "inter_token_latency_ms",
                                             .values = method.itl,
                                             .unit = "ms",
                                             .clock = results::Clock::measured});
          }
          if (!method.calls.empty())
            results.back().values.push_back({.metric = "golden_calls", .value = method.calls[i], .unit = "calls"});
          if (method.accepted > 0) {
            results.back().values.push_back({.metric = "acceptance_rate", .value = 0.5, .unit = "fraction"});
            results.back().values.push_back({.metric = "acceptance_length",
                                             .value = method.accepted + 0.1 * static_cast<double>(i),
                                             .unit = "tokens"});
          }
        }
        store.commit(run, results);
        store.settle_cell(id_of(method), {});
      }
      if (!origin.empty()) store.add_input(run, {.kind = "data", .name = "facts", .detail_json = origin, .model = "m"});
      store.finish_run(run, results::RunState::finished);
    }
    return read_run(results::ResultsReader(folder_ / file), "");
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
  EXPECT_EQ(quality.rows[2].cells[1].difference->verdict, Verdict::no_difference);
  ASSERT_TRUE(quality.rows[2].cells[1].difference->detectable);
  EXPECT_NEAR(*quality.rows[2].cells[1].difference->detectable, 3, 1e-9) << "six of 40 samples, 20 points each";
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
  EXPECT_NE(html.find("id=\"kl-sum\""), std::string::npos);
  EXPECT_NE(html.find("id=\"trade-off\""), std::string::npos);
  EXPECT_EQ(html.find("<i>answer</i>"), std::string::npos);
}

TEST_F(ReportTest, SumsKlUpToEachStepOfFewSamplesToo) {
  for (const int samples : {2, 6}) {
    const auto data = experiment(fmt::format("{}.db", samples), {{"full", scores(samples, 0.9)}});
    const std::vector<Chart> charts = kl_charts(data);
    ASSERT_EQ(charts.size(), 2U) << samples;
    const nlohmann::json points = nlohmann::json::parse(charts[1].spec).at("data").at("values");
    ASSERT_EQ(points.size(), 3U);
    EXPECT_NEAR(points.back().at("y").get<double>(), 0.3, 1e-6) << "0 + 0.1 + 0.2";
  }
}

TEST_F(ReportTest, CaptionsSayHowManySamplesWereLeftOut) {
  auto data = experiment("a.db", {{"full", scores(18, 0.9)}, {"lossy", scores(18, 0.7)}});
  EXPECT_EQ(table(experiment_report(data), "quality").caption.find("beyond"), std::string::npos);
  for (CellData& cell : data.cells) {
    cell.row.cell.left_out_samples = 2;
    cell.row.cell.protocol_json = R"({"window": 2048})";
  }
  const std::string said = "facts: 18 of 20 samples; 2 beyond the window of 2048.";
  for (const char* id : {"quality", "memory"}) {
    const std::string caption = table(experiment_report(data), id).caption;
    EXPECT_NE(caption.find(said), std::string::npos) << caption;
    EXPECT_EQ(caption.find(said), caption.rfind(said)) << "once, not for each method";
  }
}

TEST_F(ReportTest, RequestsOfALengthHaveATableOfTimesOfTheirOwn) {
  MethodScores full{"full", scores(2, 0)}, fast{"fast", scores(2, 0)};
  full.kind = fast.kind = results::CellKind::timing;
  full.itl = {20, 20, 20};
  fast.itl = {10, 10, 10};
  auto data = experiment("a.db", {full, fast});
  std::vector<CellData> longer = data.cells;
  for (CellData& cell : longer) {
    cell.row.cell.workload = "[2k,16k]";
    cell.row.cell.workload_json = R"({"name": "needle", "request_tokens": [2048, 16384]})";
    for (results::SeriesRow& row : cell.series["inter_token_latency_ms"]) {
      for (float& value : row.series.values) value *= 3;
    }
  }
  std::ranges::move(longer, std::back_inserter(data.cells));
  const Document document = experiment_report(data);
  const auto latency = [&](const std::string& id) { return table(document, id).rows[0].cells[5].value; };
  EXPECT_NEAR(latency("speed"), 20, 1e-6);
  EXPECT_NEAR(latency("speed-2k-16k"), 60, 1e-6);
  const bool remembered =
      std::ranges::any_of(document.sections, [](const Section& section) { return section.id == "memory"; });
  EXPECT_FALSE(remembered) << "a table of no rows";
}

TEST_F(ReportTest, DrawsBytesByTierWhereATierBehindTheDeviceIsUsed) {
  constexpr float kMiB = 1024 * 1024;
  const results::Series device{.name = "device_bytes", .values = {kMiB, 2 * kMiB, 3 * kMiB}, .unit = "bytes"};
  const results::Series host{.name = "host_bytes", .values = {5 * kMiB, 5 * kMiB, 6 * kMiB}, .unit = "bytes"};
  MethodScores full{"full", scores(6, 0.9)}, tiered{"tiered", scores(6, 0.6)};
  full.series = {device};
  EXPECT_TRUE(tier_charts(experiment("device.db", {full})).empty());
  tiered.series = {device, host};
  const std::vector<Chart> charts = tier_charts(experiment("tiers.db", {full, tiered}));
  ASSERT_EQ(charts.size(), 1U);
  const std::string spec = charts[0].spec;
  for (const char* line : {"full, device", "tiered, device", "tiered, host"}) {
    EXPECT_NE(spec.find(line), std::string::npos) << line;
  }
  EXPECT_EQ(spec.find("full, host"), std::string::npos);
  EXPECT_NE(spec.find(R"("x":2.0,"y":6.0)"), std::string::npos) << spec;
}

TEST_F(ReportTest, DrawsAcceptanceByDraftLength) {
  std::vector<MethodScores> methods = {{"full", scores(4, 0.9)}};
  for (const std::string drafter : {"a", "b"}) {
    for (const int length : {10, 5}) {
      methods.push_back({fmt::format("{}, x = {}", drafter, length), scores(4, 0.9)});
      methods.back().name = "verifier";
      methods.back().settings = fmt::format(R"({{"draft_length": {}, "drafter": "{}"}})", length, drafter);
      methods.back().accepted = drafter == "a" ? 0.5 * length : 1.0;
    }
  }
  methods.push_back({"alone", scores(4, 0.9)});  // one length makes no curve
  methods.back().settings = R"({"draft_length": 5})";
  methods.back().accepted = 3;
  const std::vector<Chart> charts = drafting_charts(experiment("a.db", methods));
  ASSERT_EQ(charts.size(), 1U);
  const nlohmann::json spec = nlohmann::json::parse(charts[0].spec);
  const std::string text = spec.dump();
  EXPECT_EQ(text.find("alone"), std::string::npos);
  EXPECT_EQ(text.find("x = "), std::string::npos) << "a line is called what its points have in common";
  // a: 2.5 and 5 accepted, and 0, 0.1, 0.2, 0.3 more in the four samples
  for (const char* point :
       {R"("series":"a","x":5.0,"y":2.65)", R"("series":"a","x":10.0,"y":5.15)", R"("series":"b","x":10.0,"y":1.15)"}) {
    EXPECT_NE(text.find(point), std::string::npos) << point << "\n" << text;
  }
  EXPECT_NE(render(experiment_report(experiment("b.db", methods)), Format::html).find("id=\"acceptance\""),
            std::string::npos);
}

TEST_F(ReportTest, DrawsAGridOfTwoSettings) {
  std::vector<MethodScores> methods = {{"full", scores(2, 0.9)}};
  for (const double smooth : {0.4, 0.1}) {
    for (const double cover : {0.5, 0.9}) {
      methods.push_back({fmt::format("s {} c {}", smooth, cover), {smooth, smooth + cover / 10}});
      methods.back().name = "spans";
      methods.back().settings = fmt::format(R"({{"cover": {}, "share": 0.2, "smooth": {}}})", cover, smooth);
    }
  }
  const std::vector<Chart> charts = settings_grids(experiment("grid.db", methods));
  ASSERT_EQ(charts.size(), 1U);
  EXPECT_EQ(charts[0].id, "grid-spans-facts");
  // mean of 0.1 and 0.1 + 0.09, as a percentage
  EXPECT_NE(charts[0].spec.find("14.5"), std::string::npos) << charts[0].spec;
  methods.pop_back();
  EXPECT_TRUE(settings_grids(experiment("hole.db", methods)).empty()) << "a grid with a hole is none";
  methods.back().settings = R"({"cover": 0.9, "share": 0.3, "smooth": 0.1})";
  EXPECT_TRUE(settings_grids(experiment("three.db", methods)).empty()) << "three settings are no grid";
}

TEST_F(ReportTest, CallAccuracyIsOfAllCallsTogether) {
  const ExperimentData data = experiment(
      "calls.db",
      {{.label = "Full KV", .scores = {1.0, 0.5, 0.0}, .metric = "exact_call_accuracy", .calls = {1, 2, 5}}});
  const std::vector<double> weighed = data.cells.front().numbers("exact_call_accuracy");
  ASSERT_EQ(weighed.size(), 3U);
  EXPECT_NEAR((weighed[0] + weighed[1] + weighed[2]) / 3, 2.0 / 8, 1e-12) << "two of eight calls";
}

TEST_F(ReportTest, NamesTheExperimentsThereAre) {
  (void)experiment("a.db", {{"full", scores(3, 0.9)}});
  try {
    (void)read_experiment(results::ResultsReader(folder_ / "a.db"), "f");
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("one of: e"), std::string::npos) << error.what();
  }
}

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

TEST_F(ReportTest, ExperimentsShareAPageWithNamesOfTheirOwn) {
  ExperimentData first = experiment("a.db", {{"full", scores(5, 0.8)}, {"lossy", scores(5, 0.6)}});
  ExperimentData second = first;
  second.experiment.experiment = "paper/table 2";
  const Document joined = joined_report("paper", {first, second});
  std::set<std::string> ids;
  for (const Section& section : joined.sections) EXPECT_TRUE(ids.insert(section.id).second) << section.id;
  EXPECT_TRUE(ids.contains("quality-e"));
  EXPECT_TRUE(ids.contains("quality-paper-table-2"));
  EXPECT_NO_THROW((void)table(joined, "distance-paper-table-2"));
  EXPECT_FALSE(render(joined, Format::html).empty());
}

TEST_F(ReportTest, CompareNeedsSomethingInCommon) {
  const auto before = experiment("a.db", {{"full", scores(3, 0.7)}});
  const auto after = experiment("b.db", {{"another", scores(3, 0.7)}});
  EXPECT_THROW((void)compare(before, after, {}), UserError);
}

/// Text of the summary, a sentence a line.
std::string summary(const Document& document) {
  for (const Section& section : document.sections) {
    if (section.id == "summary") return fmt::format("{}", fmt::join(section.paragraphs, "\n"));
  }
  return "";
}

MethodScores at_bytes(const std::string& label, double kept, std::vector<double> values) {
  MethodScores method{label, std::move(values)};
  method.kept = kept;
  return method;
}

TEST_F(ReportTest, TheSummaryComesFirstAndSaysWhatEachAmountOfBytesCosts) {
  const Document document = experiment_report(experiment(
      "a.db", {at_bytes("full", 1, scores(40, 0.8, 0.1)), at_bytes("drop", 0.25, scores(40, 0.6, 0.1)),
               at_bytes("worse", 0.26, scores(40, 0.3, 0.1)), at_bytes("alike", 0.25, scores(40, 0.6, 0.1)),
               at_bytes("codec", 0.5, scores(40, 0.8, 0.1)), at_bytes("select", 1.1, scores(40, 0.8, 0.1))}));
  ASSERT_EQ(document.sections.front().id, "summary");
  ASSERT_EQ(document.sections.front().charts.size(), 1U);
  EXPECT_EQ(document.sections.front().charts[0].id, "trade-off");
  const std::string text = summary(document);
  EXPECT_NE(text.find("At a quarter of full KV's bytes, "), std::string::npos) << text;
  EXPECT_NE(text.find("drop costs 20.0 points (20.0 to 20.0)"), std::string::npos) << text;
  EXPECT_NE(text.find("worse costs 50.0 points"), std::string::npos) << text;
  EXPECT_NE(text.find(" is ahead of worse."), std::string::npos) << text;
  EXPECT_NE(text.find("alike and drop cannot be told apart."), std::string::npos) << text;
  EXPECT_NE(text.find("At half of full KV's bytes, codec shows no difference"), std::string::npos) << text;
  EXPECT_NE(text.find("select holds 110% of full KV's bytes and shows no difference"), std::string::npos) << text;
}

TEST_F(ReportTest, LabelsWithCommasAreQuotedInTheSummary) {
  const std::vector<double> alike = scores(40, 0.6, 0.1);
  const std::string text =
      summary(experiment_report(experiment("a.db", {at_bytes("full", 1, scores(40, 0.8, 0.1)),
                                                    at_bytes("H2O, half", 0.5, alike), at_bytes("b", 0.5, alike)})));
  EXPECT_NE(text.find("“H2O, half” costs 20.0 points"), std::string::npos) << text;
  EXPECT_NE(text.find("“H2O, half” and b cannot be told apart"), std::string::npos) << text;
}

/// A cell of timed repeats, sample by sample; "full" is the baseline.
CellData timed_cell(const std::string& method, const std::string& metric,
                    const std::vector<std::vector<float>>& repeats) {
  CellData data;
  data.row.state = results::CellState::done;
  data.row.cell.method = method;
  data.row.cell.workload = "w";
  data.row.cell.kind = results::CellKind::timing;
  data.row.cell.baseline = method == "full";
  for (size_t i = 0; i < repeats.size(); ++i)
    data.series[metric].push_back({.sample_id = std::to_string(i), .series = {.name = metric, .values = repeats[i]}});
  return data;
}

TEST(DraftingCharts, SpeedUpsByDraftLengthAreOverTheBaseline) {
  const auto drafting = [](int length, float rate) {
    CellData cell = timed_cell(fmt::format("x = {}", length), "throughput_tokens_per_s", {{rate, rate}});
    cell.row.cell.settings_json = fmt::format(R"({{"draft_length": {}}})", length);
    return cell;
  };
  ExperimentData data;
  data.cells = {timed_cell("full", "throughput_tokens_per_s", {{10, 10}}), drafting(5, 25), drafting(10, 30)};
  const std::vector<Chart> charts = drafting_charts(data);
  ASSERT_EQ(charts.size(), 1U);
  EXPECT_EQ(charts[0].id, "draft-speedup");
  for (const char* point : {R"("x":5.0,"y":2.5)", R"("x":10.0,"y":3.0)"})
    EXPECT_NE(charts[0].spec.find(point), std::string::npos) << charts[0].spec;
}

TEST(TimeTest, ADifferenceIsTheMedianOverSamples) {
  const auto cell = [](const std::string& method, const std::vector<std::vector<float>>& repeats) {
    return timed_cell(method, "inter_token_latency_ms", repeats);
  };
  ExperimentData data;
  data.cells = {cell("full", {{10, 10}, {10, 10}, {10, 10}}), cell("slow", {{12, 12}, {13, 13}, {400, 400}})};
  EXPECT_EQ(time_test(data, "slow", "inter_token_latency_ms")->difference, 3) << "one sample on a busy machine";
}

TEST_F(ReportTest, BytesStandBesideScoresAndTheBestIsOneOfEqualBytes) {
  const auto data =
      experiment("a.db", {at_bytes("full", 1, scores(40, 0.8, 0.1)), at_bytes("drop", 0.25, scores(40, 0.6, 0.1)),
                          at_bytes("worse", 0.25, scores(40, 0.3, 0.1)), at_bytes("codec", 0.5, scores(40, 0.8, 0.1))});
  const Table quality = table(experiment_report(data), "quality");
  ASSERT_EQ(quality.columns[2].title, "Resident");
  EXPECT_NEAR(quality.rows[1].cells[2].value, 25, 1e-9);
  EXPECT_TRUE(quality.rows[1].cells[1].best);
  EXPECT_FALSE(quality.rows[2].cells[1].best);
  EXPECT_FALSE(quality.rows[3].cells[1].best) << "it is alone at its bytes";
}

TEST_F(ReportTest, AnyMethodMayBeTheBaseline) {
  const auto data =
      experiment("a.db", {{"full", scores(40, 0.8, 0.1)}, {"a", scores(40, 0.6, 0.1)}, {"b", scores(40, 0.7, 0.1)}});
  const Document document = experiment_report(data, {.baseline = "a"});
  const Table quality = table(document, "quality");
  EXPECT_EQ(quality.rows[1].role, RowRole::baseline);
  EXPECT_NEAR(quality.rows[2].cells[1].difference->value, 10, 1e-9);
  EXPECT_EQ(quality.rows[2].cells[1].difference->verdict, Verdict::better);
  EXPECT_NE(quality.caption.find("paired with a on"), std::string::npos);
  try {
    (void)experiment_report(data, {.baseline = "c"});
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("one of: full, a, b"), std::string::npos) << error.what();
  }
}

TEST_F(ReportTest, TheProtocolThatAllRowsShareIsOneLineWithoutHashes) {
  const std::string card = R"({"metrics": "qa_f1 v1", "dtype": "bf16", "max_new_tokens": 12, "data_sha256": "4e3a"})";
  const auto data = experiment("a.db", {{"full", scores(6, 0.5), card}, {"other", scores(6, 0.5), card}});
  const Document document = experiment_report(data);
  const std::string text = render(document, Format::markdown);
  EXPECT_NE(text.find("Protocol of all rows: dtype bf16; max new tokens 12."), std::string::npos) << text;
  EXPECT_FALSE(table(document, "quality").has_badges());
}

TEST_F(ReportTest, TimesHaveVerdictsOfTheirOwn) {
  const auto timed = [](const std::string& label, std::vector<float> repeats) {
    MethodScores method{label, scores(2, 0.5)};
    method.kind = results::CellKind::timing;
    method.itl = std::move(repeats);
    return method;
  };
  const auto verdicts = [&](const std::string& file, std::vector<float> base,
                            const std::vector<std::vector<float>>& others) {
    std::vector<MethodScores> methods = {timed("full", std::move(base))};
    for (const auto& repeats : others) methods.push_back(timed(fmt::format("m{}", methods.size()), repeats));
    std::vector<Verdict> list;
    const Document document = experiment_report(experiment(file, methods));
    for (const TableRow& row : table(document, "speed").rows) {
      for (const TableCell& cell : row.cells) EXPECT_FALSE(cell.best);
      if (row.role == RowRole::baseline) continue;
      EXPECT_FALSE(row.cells[2].difference) << "they share one prefill";
      for (const TableCell& cell : row.cells) {
        if (cell.difference) list.push_back(cell.difference->verdict);
      }
    }
    EXPECT_EQ(render(document, Format::html).find("id=\"first-token\""), std::string::npos);
    return list;
  };
  // Two samples with four repeats each: all on one side has a chance of 2 / 70^2.
  EXPECT_EQ(verdicts("a.db", {10, 11, 10, 12}, {{20, 21, 19, 13}, {20, 21, 19, 11}, {8, 9, 7, 9}}),
            (std::vector<Verdict>{Verdict::worse, Verdict::no_difference, Verdict::better}));
  EXPECT_EQ(verdicts("b.db", {10, 11}, {{30, 31}}), std::vector<Verdict>{Verdict::too_few}) << "2 / 6^2 = 0.056";
}

TEST_F(ReportTest, AFewSamplesProveNothing) {
  const auto verdict = [&](int64_t samples) {
    const auto data =
        experiment(fmt::format("{}.db", samples), {{"full", scores(samples, 1.0)}, {"lossy", scores(samples, 0.0)}});
    const Table quality = table(experiment_report(data), "quality");
    EXPECT_EQ(quality.rows[1].cells[1].interval.has_value(), samples > 1);
    EXPECT_EQ(quality.rows[1].cells[1].notes.empty(), samples > 5) << "a note says why there is no verdict";
    return quality.rows[1].cells[1].difference->verdict;
  };
  for (const int64_t samples : {1, 4, 5}) EXPECT_EQ(verdict(samples), Verdict::too_few) << samples;
  for (const int64_t samples : {6, 8, 20}) EXPECT_EQ(verdict(samples), Verdict::worse) << samples;
}

TEST_F(ReportTest, ANumberOfOtherSamplesIsMarked) {
  const auto data =
      experiment("a.db", {{"full", scores(20, 0.5)}, {"lossy", scores(20, 0.4)}, {"new", scores(8, 0.4)}});
  const Table quality = table(experiment_report(data), "quality");
  EXPECT_TRUE(quality.rows[1].cells[1].notes.empty());
  ASSERT_EQ(quality.rows[2].cells[1].notes.size(), 1U);
  EXPECT_EQ(quality.footnotes.at(quality.rows[2].cells[1].notes[0]),
            "On 8 samples where full has 20; the difference is over those of both.");
  const Table memory = table(experiment_report(data), "memory");
  ASSERT_EQ(memory.rows[2].cells[0].notes.size(), 1U);
  EXPECT_EQ(memory.footnotes.at(memory.rows[2].cells[0].notes[0]), "Over 8 samples where full has 20.");
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
  auto data = experiment("a.db", {{"full", scores(20, 0.9)},
                                  {"lossy", scores(20, 0.7)},
                                  {"full", scores(20, 0.5), card, true, "", "n", true},
                                  {"lossy", scores(20, 0.5), card, true, "", "n"}});
  const Table joint = table(experiment_report(data), "quality");
  ASSERT_EQ(joint.rows.size(), 4U) << "models are rows unless the config's table says otherwise";
  EXPECT_EQ(joint.rows[1].cells[0].text + joint.rows[1].cells[1].text, "mlossy");
  EXPECT_NEAR(joint.rows[1].cells[2].difference->value, -20, 1e-9);
  EXPECT_NEAR(joint.rows[3].cells[2].difference->value, 0, 1e-9);
  data.experiment.table_json = R"({"rows": ["method"]})";
  const Document document = experiment_report(data);
  EXPECT_NEAR(table(document, "quality-m").rows[1].cells[1].difference->value, -20, 1e-9);
  EXPECT_NEAR(table(document, "quality-n").rows[1].cells[1].value, 50, 1e-9);
  EXPECT_NEAR(table(document, "quality-n").rows[1].cells[1].difference->value, 0, 1e-9);
  EXPECT_EQ(compare(data, data, {}).same, 4);
}

TEST_F(ReportTest, ProtocolsOfQuestionsStayApartAndEveryCaptionSaysWhich) {
  const std::string card = R"({"metrics": "qa_f1 v1", "question": "seen"})";
  auto data = experiment("a.db", {{"full", scores(20, 0.9), card}, {"lossy", scores(20, 0.7), card}});
  const ExperimentData seen = data;
  const std::vector<std::string> protocols = {"seen", "unseen", "turns", "first_seen"};
  std::map<std::string, double> expected = {{"seen", 90}};
  for (size_t i = 1; i < protocols.size(); ++i) {
    expected[protocols[i]] = 90 - 10.0 * static_cast<double>(i);
    for (CellData cell : seen.cells) {
      cell.row.cell.workload = "calls " + protocols[i];
      std::ranges::find(cell.card, "question", &std::pair<std::string, std::string>::first)->second = protocols[i];
      for (results::ValueRow& score : cell.values["qa_f1"].rows) score.value -= 0.1 * static_cast<double>(i);
      data.cells.push_back(std::move(cell));
    }
  }
  data.experiment.table_json = R"({"rows": ["method"], "average": true})";
  EXPECT_EQ(data.questions(), protocols);
  const Document document = experiment_report(data);
  int64_t tables = 0;
  for (const Section& section : document.sections) {
    for (const Table& one : section.tables) {
      ++tables;
      const size_t place = one.id.find("question-");
      ASSERT_NE(place, std::string::npos) << one.id;
      std::string protocol = one.id.substr(place + 9);
      std::ranges::replace(protocol, '-', '_');
      const std::string said = protocol == "first_seen" ? "Question first seen: " : "Question " + protocol + ": ";
      EXPECT_NE(one.caption.find(said), std::string::npos) << one.caption;
      if (!one.id.starts_with("quality-question-")) continue;
      ASSERT_EQ(one.rows.size(), 2U);
      for (const TableCell& cell : one.rows[0].cells) {
        if (!cell.has_value() || !cell.interval) continue;
        EXPECT_NEAR(cell.value, expected.at(protocol), 1e-9) << "no mean over several";
      }
      expected.erase(protocol);
    }
  }
  EXPECT_TRUE(expected.empty());
  EXPECT_GT(tables, 8);
  EXPECT_NE(table(experiment_report(seen), "quality").caption.find("Question seen"), std::string::npos);
  EXPECT_THROW((void)equal_bytes_report(data, 1), UserError);
}

TEST_F(ReportTest, ModelledTimesStandUnderANameOfTheirOwn) {
  const std::string card = R"({"metrics": "qa_f1 v1", "dtype": "bf16"})";
  const auto data =
      experiment("a.db", {{"full", scores(3, 0.9), card, true, "", "m", false, results::Clock::measured},
                          {"fast", scores(3, 0.9), card, true, "", "m", false, results::Clock::modelled}});
  EXPECT_EQ(data.cells[0].numbers("wait_ms").size(), 3U);
  EXPECT_TRUE(data.cells[1].numbers("wait_ms").empty());
  EXPECT_EQ(data.cells[1].numbers("wait_ms (modelled)").size(), 3U);
}

TEST_F(ReportTest, PublishedValuesStandBesideOurs) {
  const auto published = [](const std::string& method, double value) {
    return results::PublishedValue{.model = "m",
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
  EXPECT_EQ(rows["full"][7].text, "match");
  EXPECT_NEAR(rows["lossy"][5].value, 60, 1e-9);
  EXPECT_NEAR(rows["lossy"][6].value, -3, 1e-9);
  EXPECT_EQ(rows["lossy"][7].text, "within interval");
  EXPECT_EQ(rows["absent"][7].text, "not comparable: no value here");
}

TEST_F(ReportTest, PublishedValuesOfAModelThatWasNotRunStandBesideOursToldApart) {
  const auto published = [](const std::string& model, const std::string& method) {
    return results::PublishedValue{.model = model,
                                   .workload = "facts",
                                   .method = method,
                                   .metric = "qa_f1",
                                   .value = 80,
                                   .unit = "percent",
                                   .source = model + " " + method};
  };
  const std::vector<results::PublishedValue> printed = {published("m", "full"), published("n", "full"),
                                                        published("large", "full"), published("large", "lossy"),
                                                        published("large", "absent")};
  MethodScores other{"full", scores(20, 0.7)};
  other.model = "n";
  other.baseline = true;
  const auto data =
      experiment("a.db", {{"full", scores(20, 0.8)}, {"lossy [keep=0.1]", scores(20, 0.6)}, other}, printed);
  for (const char* model : {"m", "n"}) {
    const auto section = published_section(data.of_model(model));
    ASSERT_TRUE(section);
    std::map<std::string, std::vector<TableCell>> rows;
    for (const TableRow& row : section->tables.front().rows) rows[row.cells[8].text] = row.cells;
    EXPECT_EQ(rows.size(), 4U) << "own and unrun models, not the other that was run";
    EXPECT_EQ(rows.at(fmt::format("{} full", model))[9].text, model);
    EXPECT_EQ(rows.at("large full")[5].kind, CellKind::not_comparable);
    EXPECT_EQ(rows.at("large full")[7].text, fmt::format("not comparable: {} was run", model));
    EXPECT_EQ(rows.at("large full")[9].text, "large");
    const bool changed = model == std::string("m");  // of n the method was not run
    EXPECT_EQ(rows.at("large lossy")[5].has_value(), changed);
    EXPECT_EQ(rows.at("large lossy")[0].text, "lossy [keep=0.1]");
    EXPECT_EQ(section->paragraphs.front(),
              fmt::format("{} of 4 published numbers have one of ours beside them, {} of these one of the same model "
                          "and data. Without one: no value here ({}).",
                          changed ? 3 : 2, 1, changed ? 1 : 2));
  }
}

TEST_F(ReportTest, ProjectMadeSamplesAreMarkedInEveryTableChartAndFormat) {
  const results::PublishedValue printed{.model = "m",
                                        .workload = "facts",
                                        .method = "full",
                                        .metric = "qa_f1",
                                        .value = 80,
                                        .unit = "percent",
                                        .source = "table 1"};
  const std::string mark = "project-made sample, not LongBench";
  const auto data = experiment("a.db", {{"full", scores(20, 0.8)}, {"lossy", scores(20, 0.6, 0.2)}}, {printed},
                               R"({"origin": "project-made sample", "instead_of": "LongBench"})");
  const Document document = experiment_report(data);
  EXPECT_EQ(document.title, fmt::format("E ({})", mark));
  size_t tables = 0, charts = 0;
  for (const Section& section : document.sections) {
    for (const Table& one : section.tables) {
      ++tables;
      EXPECT_NE(one.caption.find(mark), std::string::npos) << one.id;
      EXPECT_NE(table_latex(one).find(mark), std::string::npos) << one.id;
    }
    for (const Chart& one : section.charts) {
      ++charts;
      EXPECT_NE(one.caption.find(mark), std::string::npos) << one.id;
      EXPECT_NE(nlohmann::json::parse(one.spec)["title"].get<std::string>().find(mark), std::string::npos) << one.id;
    }
  }
  EXPECT_GE(tables, 4U);
  EXPECT_GE(charts, 2U);
  const Table published = table(document, "published");
  EXPECT_EQ(published.rows[0].cells[1].text, "facts (project-made)");
  EXPECT_EQ(published.rows[0].cells[5].kind, CellKind::not_comparable);
  EXPECT_EQ(published.rows[0].cells[7].text, fmt::format("not comparable: {}", mark));
  EXPECT_NE(render(document, Format::csv).find("facts (project-made)"), std::string::npos);
  const auto official = experiment("b.db", {{"full", scores(20, 0.8)}, {"lossy", scores(20, 0.6)}}, {printed},
                                   R"({"origin": "facts.jsonl"})");
  for (const Format format : {Format::html, Format::markdown, Format::latex, Format::csv})
    EXPECT_EQ(render(experiment_report(official), format).find("project-made"), std::string::npos);
}

TEST_F(ReportTest, PublishedValuesAreComparedInTheirOwnUnit) {
  const auto printed = [](double value, const std::string& unit, const std::string& source) {
    return results::PublishedValue{.model = "m",
                                   .workload = "facts",
                                   .method = "full",
                                   .metric = "qa_f1",
                                   .value = value,
                                   .unit = unit,
                                   .source = source};
  };
  const auto data = experiment("a.db", {{"full", scores(20, 0.8)}},
                               {printed(0.8, "fraction", "a"), printed(79, "", "b"), printed(8, "nats", "c"),
                                printed(4.1, "marks from 1 to 5", "d")});
  const Table published = table(experiment_report(data), "published");
  EXPECT_EQ(published.rows[0].cells[7].text, "match");
  EXPECT_EQ(published.rows[1].cells[7].text, "not comparable: printed in plain numbers, stored in fraction");
  EXPECT_EQ(published.rows[2].cells[7].text, "not comparable: printed in nats, stored in fraction");
  EXPECT_NEAR(published.rows[3].cells[5].value, 4.2, 1e-9) << "marks begin at 1";
}

TEST_F(ReportTest, PublishedValuesAreComparedInKind) {
  std::vector<results::PublishedValue> printed;
  const auto print = [&](results::Statistic statistic, double value, const std::string& bound = "",
                         std::optional<double> upper = std::nullopt, const std::string& metric = "qa_f1") {
    printed.push_back({.model = "m",
                       .workload = "facts",
                       .method = "lossy",
                       .metric = metric,
                       .value = value,
                       .upper = upper,
                       .unit = metric == "prompt_length" ? "tokens" : "×",
                       .statistic = statistic,
                       .bound = bound,
                       .source = std::to_string(printed.size())});
  };
  using enum results::Statistic;
  print(minimum, 0.2);
  print(relative, 0.5);
  print(reduction, 2);
  print(median_drop, 0.5);
  print(mean, 0.3, "<");
  print(mean, 0.4, ">=");
  print(mean, 0.5, "<=");
  print(mean, 0.1, "", 0.3);
  print(mean, 0.4, "", 0.5);
  print(mean, 0.4, "~");
  print(mean, 7, "", std::nullopt, "prompt_length");
  MethodScores full{"full", {0.8, 0.8, 0.8}}, lossy{"lossy", {0.2, 0.4, 0.6}};
  const auto data = experiment("a.db", {full, lossy}, printed);
  const Table published = table(experiment_report(data), "published");
  std::map<std::string, std::vector<TableCell>> rows;
  for (const TableRow& row : published.rows) rows[row.cells[8].text] = row.cells;
  for (const char* row : {"0", "1", "2", "3", "9"}) EXPECT_EQ(rows[row][7].text, "match") << row;
  EXPECT_EQ(rows["3"][2].text, "qa_f1, median drop");
  EXPECT_EQ(rows["4"][7].text, "does not hold");
  EXPECT_EQ(rows["4"][4].text, "below 0.3");
  EXPECT_FALSE(rows["4"][6].has_value()) << "a bound has no difference";
  EXPECT_EQ(rows["5"][7].text, "holds") << "at least what is equal";
  EXPECT_EQ(rows["6"][7].text, "holds");
  EXPECT_EQ(rows["7"][7].text, "differs");
  EXPECT_EQ(rows["8"][7].text, "within the range");
  EXPECT_EQ(rows["8"][4].text, "0.4 to 0.5");
  EXPECT_EQ(rows["9"][4].text, "about 0.4");
  EXPECT_EQ(rows["10"][5].value, 0) << "the samples' own lengths";
}

TEST_F(ReportTest, APublishedValueOfAllWorkloadsIsHeldAgainstTheirMean) {
  const auto of_all = [](const std::string& metric, results::Statistic statistic, double value) {
    return results::PublishedValue{.model = "m",
                                   .workload = std::string(results::kAllWorkloads),
                                   .method = "full",
                                   .metric = metric,
                                   .value = value,
                                   .unit = "percent",
                                   .statistic = statistic,
                                   .source = metric};
  };
  const auto data = experiment(
      "a.db", {{"full", {0.8, 0.6}}},
      {of_all("score", results::Statistic::mean, 70), of_all("kept_bytes_fraction", results::Statistic::minimum, 50),
       of_all("perplexity", results::Statistic::mean, 1)});
  std::map<std::string, std::vector<TableCell>> rows;
  for (const TableRow& row : table(experiment_report(data), "published").rows) rows[row.cells[8].text] = row.cells;
  EXPECT_EQ(rows["score"][7].text, "match");
  EXPECT_EQ(rows["score"][1].text, "all");
  EXPECT_EQ(rows["kept_bytes_fraction"][7].text, "match");
  EXPECT_EQ(rows["perplexity"][7].text, "not comparable: no value of facts");
}

TEST_F(ReportTest, LowerPerplexityIsBetterAndIsNoPercentage) {
  const std::string card = R"({"metrics": "perplexity v1", "dtype": "bf16"})";
  const auto with = [&](const std::string& label, double value) {
    MethodScores method{label, scores(30, value, 0.1), card};
    method.metric = "perplexity";
    return method;
  };
  const auto data = experiment("a.db", {with("full", 20), with("lossy", 25), with("lucky", 18)});
  const Table quality = table(experiment_report(data), "quality");
  EXPECT_EQ(quality.columns[1].better, Better::lower);
  EXPECT_NEAR(quality.rows[0].cells[1].value, 20, 1e-9);
  EXPECT_EQ(quality.rows[1].cells[1].difference->verdict, Verdict::worse);
  EXPECT_EQ(quality.rows[2].cells[1].difference->verdict, Verdict::better);
  const auto after = experiment("b.db", {with("full", 20), with("lossy", 27)});
  EXPECT_EQ(compare(data, after, {.margin = 1.5}).regressions, 1);
  EXPECT_EQ(compare(data, after, {.margin = 2.5}).regressions, 0);
}

TEST_F(ReportTest, WithoutDistancesThereIsNoSectionOfThem) {
  MethodScores timed{"full", scores(3, 0.5)};
  timed.kind = results::CellKind::timing;  // the only cell: nothing was answered
  for (const Section& section : experiment_report(experiment("a.db", {timed})).sections) {
    EXPECT_NE(section.id, "distance");
  }
}

TEST_F(ReportTest, WhatTimingSaysOfLinksAndMemoryIsShown) {
  MethodScores full{"full", scores(1, 5000)}, other{"other", scores(1, 1000)};
  full.kind = other.kind = results::CellKind::timing;
  full.metric = other.metric = "slow_link_bytes";
  const Document links = experiment_report(experiment("a.db", {full, other}));
  const Table prefixes = table(links, "remote-prefix");
  ASSERT_EQ(prefixes.rows.size(), 2U);
  EXPECT_EQ(prefixes.rows[1].cells[8].value, 1000);
  EXPECT_THROW((void)table(links, "speed"), std::runtime_error);  // which would say it again

  full.metric = other.metric = "concurrent_requests";
  const Document memory = experiment_report(experiment("b.db", {full, other}));
  EXPECT_EQ(table(memory, "verification-runtime").rows.size(), 2U);
  EXPECT_EQ(table(memory, "speed").rows.size(), 2U);
}

TEST_F(ReportTest, AMetricThatNobodyDefinedIsGoodInNeitherDirection) {
  const std::string card = R"({"metrics": "oddity v1"})";
  MethodScores full{"full", scores(30, 2, 0.1), card};
  MethodScores other{"other", scores(30, 3, 0.1), card};
  full.metric = other.metric = "oddity";
  const auto data = experiment("a.db", {full, other});
  EXPECT_EQ(table(experiment_report(data), "quality").rows[1].cells[1].difference->verdict, Verdict::differs);
}

TEST_F(ReportTest, ASecondRunOfFullIsARowAndItsNoiseSwallowsDifferences) {
  MethodScores again{"full", scores(40, 0.8, 0.1)};
  again.kind = results::CellKind::noise_floor;
  const MethodScores lossy{"lossy", scores(40, 0.75, 0.1)};
  const auto exact = experiment("a.db", {{"full", scores(40, 0.8, 0.1)}, again, lossy});
  Table quality = table(experiment_report(exact), "quality");
  ASSERT_EQ(quality.rows.size(), 3U);
  EXPECT_EQ(quality.rows[1].role, RowRole::noise_floor);
  EXPECT_EQ(quality.rows[1].cells[1].difference->value, 0);
  EXPECT_EQ(quality.rows[2].cells[1].difference->verdict, Verdict::worse);
  EXPECT_EQ(table(experiment_report(exact), "sensitivity").rows[0].cells[3].value, 0) << "measured, and nothing";
  EXPECT_EQ(table(experiment_report(exact), "distance").rows[1].role, RowRole::noise_floor);

  again.scores = scores(40, 0.8, 0.2);  // each sample 10 points off, the mean where it was
  const auto noisy = experiment("b.db", {{"full", scores(40, 0.8, 0.1)}, again, lossy});
  quality = table(experiment_report(noisy), "quality");
  EXPECT_EQ(quality.rows[2].cells[1].difference->verdict, Verdict::no_difference);
  EXPECT_NEAR(table(experiment_report(noisy), "sensitivity").rows[0].cells[3].value, 10, 1e-9);
  const auto later = experiment("c.db", {{"full", scores(40, 0.8, 0.1)}, again, {"lossy", scores(40, 0.7, 0.1)}});
  EXPECT_EQ(compare(exact, noisy, {}).same, 2);
  EXPECT_EQ(compare(noisy, later, {}).changed, 1) << "a run that differs from itself by 10 points proves no loss of 5";
  EXPECT_EQ(compare(noisy, later, {}).regressions, 0);
}

TEST_F(ReportTest, OneRowIsNoOtherRowsQuestion) {
  std::vector<double> dipping(20, 0.5);
  std::fill_n(dipping.begin(), 7, 0.3);
  std::vector<MethodScores> methods = {{"full", std::vector<double>(20, 0.5)}};
  for (int i = 0; i < 6; ++i) methods.push_back({"lossy " + std::to_string(i), dipping});
  const Table quality = table(experiment_report(experiment("a.db", methods)), "quality");
  for (size_t row = 1; row < quality.rows.size(); ++row)
    EXPECT_EQ(quality.rows[row].cells[1].difference->verdict, Verdict::worse) << "p = 2/128, whoever else is there";
}

TEST_F(ReportTest, SamplesOfUnequalPromptsAreNoPair) {
  MethodScores other{"other", scores(6, 0.5)};
  other.prompt = "another";
  const auto data = experiment("a.db", {{"full", scores(6, 0.5)}, other});
  try {
    (void)experiment_report(data);
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("facts, other: sample s0: found prompt another0 here and prompt0 in "
                        "facts, full, expected the same prompt"),
              std::string::npos)
        << error.what();
  }
  const Table quality = table(experiment_report(data, {.allow_unlike_cards = true}), "quality");
  EXPECT_EQ(quality.rows[1].cells[1].kind, CellKind::not_comparable);
  const auto same = experiment("b.db", {{"full", scores(6, 0.5)}, {"other", scores(6, 0.5)}});
  EXPECT_THROW((void)compare(same, data, {.allow_unlike = true}), UserError);
}

TEST_F(ReportTest, MarksSayWhereNumbersComeFrom) {
  MethodScores faked{"faked", scores(6, 0.5)};
  faked.storage = results::Storage::simulated;
  MethodScores elsewhere{"elsewhere", scores(6, 0.5)};
  elsewhere.storage = results::Storage::emulated;
  const Document document = experiment_report(experiment("a.db", {{"full", scores(6, 0.5)}, faked, elsewhere}));
  const Table memory = table(document, "memory");
  EXPECT_FALSE(memory.rows[0].cells[2].simulated);
  EXPECT_TRUE(memory.rows[1].cells[2].simulated);
  EXPECT_TRUE(memory.rows[2].cells[2].emulated);
  bool said = false;
  for (const Section& section : document.sections) {
    for (const Chart& chart : section.charts) {
      said = said || chart.caption.find("measured but for faked, elsewhere") != std::string::npos;
    }
  }
  EXPECT_TRUE(said);
}

TEST_F(ReportTest, TimesComeWithTheirSpreadAndTheirClock) {
  MethodScores timed{"full", scores(1, 0.5)};
  timed.kind = results::CellKind::timing;
  const Table speed = table(experiment_report(experiment("a.db", {{"full", scores(6, 0.5)}, timed})), "speed");
  ASSERT_EQ(speed.rows.size(), 1U);
  EXPECT_EQ(speed.rows[0].cells[1].text, "measured");
  EXPECT_NEAR(speed.rows[0].cells[2].value, 11.5, 1e-9);
  EXPECT_NEAR(speed.rows[0].cells[2].interval->low, 10.3, 1e-6);
  EXPECT_NEAR(speed.rows[0].cells[2].interval->high, 31.6, 1e-5);
}

TEST_F(ReportTest, ServingShowsARowAPointOnEachClock) {
  {
    auto store = results::ResultsStore::open_or_create(folder_ / "serving.db");
    const std::string run = store.begin_run({.experiment = "e", .title = "E"}, {.experiment = "e"});
    std::vector<results::CellRecord> cells;
    for (const auto& [id, kind] :
         {std::pair{"q", results::CellKind::quality}, std::pair{"s", results::CellKind::serving}}) {
      cells.push_back({.cell_id = id,
                       .experiment = "e",
                       .kind = kind,
                       .model = "m",
                       .workload = "facts",
                       .method = "full",
                       .method_name = "full",
                       .protocol_json = R"({"metrics": "qa_f1 v1"})",
                       .protocol_sha256 = "card",
                       .baseline = true,
                       .planned_samples = 2});
    }
    store.upsert_cells(cells);
    std::vector<results::SampleResult> results;
    for (const auto& [point, rate, ttft] : {std::tuple{"0.5x", 1.0, 100.0}, std::tuple{"1.2x", 2.4, 900.0}}) {
      results.push_back({.cell_id = "s",
                         .sample_id = point,
                         .sample_index = static_cast<int64_t>(results.size()),
                         .values = {{.metric = "served_score", .value = 1, .unit = "fraction"},
                                    {.metric = "offered_requests_per_s",
                                     .value = rate,
                                     .unit = "requests/s",
                                     .clock = results::Clock::measured},
                                    {.metric = "mean_time_to_first_token_ms",
                                     .value = ttft,
                                     .unit = "ms",
                                     .clock = results::Clock::measured},
                                    {.metric = "mean_time_to_first_token_ms",
                                     .value = ttft / 10,
                                     .unit = "ms",
                                     .clock = results::Clock::modelled}},
                         .series = {{.name = "time_to_first_token_ms",
                                     .values = {100, static_cast<float>(2 * ttft - 100)},
                                     .unit = "ms",
                                     .clock = results::Clock::measured}}});
    }
    store.commit(run, results);
    store.settle_cell("s", {});
    store.finish_run(run, results::RunState::finished);
  }
  const Document document = experiment_report(read_experiment(results::ResultsReader(folder_ / "serving.db"), ""));
  const Table serving = table(document, "serving");
  ASSERT_EQ(serving.rows.size(), 4U);
  EXPECT_EQ(serving.rows[0].cells[2].text, "measured");
  EXPECT_EQ(serving.rows[1].cells[3].text, "1.2x");
  EXPECT_EQ(serving.rows[1].cells[4].value, 2.4);
  EXPECT_EQ(serving.rows[1].cells[6].value, 900);
  EXPECT_EQ(serving.rows[3].cells[2].text, "modelled");
  EXPECT_EQ(serving.rows[3].cells[6].value, 90);
  EXPECT_TRUE(serving.rows[3].cells[6].modelled);
  EXPECT_FALSE(serving.rows[3].cells[4].has_value());
  bool chart = false;
  for (const Section& section : document.sections)
    chart = chart || (section.id == "serving" && section.charts.size() > 1 && section.charts[1].id == "arrivals-1");
  EXPECT_TRUE(chart);
}

}  // namespace
}  // namespace kvarena::reports
