// Verdicts: what they promise over many designs, and what they rest on in a table.

#include "reports/verdict.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/core/random.h"
#include "reports/experiment_report.h"

namespace kvarena::reports {
namespace {

const MetricLook kScore{.title = "F1", .unit = "%", .scale = 100, .better = Better::higher};

/// One method's scores on one workload beside the baseline's.
using Design = SamplePairs;

/// A score between 0 and 1 of one of three kinds: right or wrong, thirds, or any number.
double score(const RandomStream& random, uint64_t draw, uint64_t kind, double right) {
  if (kind == 0) return random.uniform(draw) < right ? 1 : 0;
  if (kind == 1) return static_cast<double>(random.below(4, draw)) / 3;
  return random.uniform(draw);
}

/// Up to five workloads of up to 40 samples. Method and baseline score alike on a share of the samples and are
/// exchangeable on the others, so there is no difference to be found.
std::vector<Design> row_without_difference(uint64_t seed) {
  const RandomStream random(seed, "designs");
  uint64_t draw = 0;
  std::vector<Design> row(1 + random.below(5, draw++));
  for (Design& design : row) {
    const uint64_t samples = 1 + random.below(40, draw++);
    const uint64_t kind = random.below(3, draw++);
    const double alike = random.uniform(draw++), right = random.uniform(draw++);
    for (uint64_t i = 0; i < samples; ++i) {
      design.method.push_back(score(random, draw++, kind, right));
      const double other = score(random, draw++, kind, right);
      design.baseline.push_back(random.uniform(draw++) < alike ? design.method.back() : other);
    }
  }
  return row;
}

std::vector<Difference> verdicts_of(const std::vector<Design>& row, int64_t resamples) {
  std::vector<metrics::PairedDifference> tests;
  for (const Design& design : row)
    tests.push_back(metrics::paired_difference(design.method, design.baseline, {.resamples = resamples}));
  const std::vector<double> p_values = row_p_values(tests);
  std::vector<Difference> verdicts;
  for (size_t i = 0; i < tests.size(); ++i)
    verdicts.push_back(verdict_of({.test = tests[i], .p_value = p_values[i], .floor = {}, .tokens = {}}, kScore));
  return verdicts;
}

bool leaves_zero(const Difference& difference) { return difference.interval.low > 0 || difference.interval.high < 0; }

TEST(Verdicts, RaiseAFalseAlarmInFewerThanOneRowOfTwenty) {
  constexpr int kRows = 10'000;
  int alarms = 0, cells = 0, silent = 0;
  for (uint64_t seed = 0; seed < kRows; ++seed) {
    bool alarm = false;
    for (const Difference& one : verdicts_of(row_without_difference(seed), 127)) {
      alarm = alarm || one.verdict == Verdict::better || one.verdict == Verdict::worse;
      ++cells;
      silent += one.verdict == Verdict::too_few;
      EXPECT_FALSE(one.verdict == Verdict::no_difference && leaves_zero(one)) << seed;
    }
    alarms += alarm;
  }
  RecordProperty("rows_with_a_false_alarm", alarms);
  EXPECT_LT(alarms, kRows / 20);
  EXPECT_GT(alarms, kRows / 200) << "a test that never speaks proves nothing";
  EXPECT_LT(silent, cells / 3);
}

TEST(Verdicts, LosingEveryPairIsWorseFromSixPairsOn) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const RandomStream random(seed, "losses");
    std::vector<Design> row(1 + random.below(4, 0));
    uint64_t draw = 1;
    for (Design& design : row) {
      const uint64_t samples = 1 + random.below(20, draw++);
      for (uint64_t i = 0; i < samples; ++i) {
        design.baseline.push_back(1);
        design.method.push_back(0.99 * random.uniform(draw++));
      }
    }
    const std::vector<Difference> verdicts = verdicts_of(row, 2000);
    for (size_t i = 0; i < row.size(); ++i) {
      const size_t pairs = row[i].method.size();
      EXPECT_EQ(verdicts[i].verdict, pairs < 6 ? Verdict::too_few : Verdict::worse)
          << seed << ", " << pairs << " pairs";
    }
  }
}

TEST(Verdicts, NineOfTenLostIsWorseBesideFourQuietWorkloads) {
  const Design needle{.method = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, .baseline = std::vector<double>(10, 1.0)};
  const Design quiet{.method = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1}, .baseline = {1, 0, 1, 0, 1, 0, 1, 0, 1, 0}};
  const std::vector<Difference> verdicts = verdicts_of({quiet, needle, quiet, quiet, quiet}, 10'000);
  EXPECT_EQ(verdicts[1].verdict, Verdict::worse);
  EXPECT_NEAR(verdicts[1].value, -90, 1e-9);
  EXPECT_EQ(verdicts[0].verdict, Verdict::no_difference);
}

TEST(Verdicts, AnIntervalThatLeavesZeroIsNeverNoDifference) {
  // Four of twenty lost and none won: the interval leaves zero, p = 2/2^4.
  Design design{.method = std::vector<double>(20, 1.0), .baseline = std::vector<double>(20, 1.0)};
  std::fill_n(design.method.begin(), 4, 0.0);
  const Difference difference = verdicts_of({design}, 10'000).front();
  EXPECT_TRUE(leaves_zero(difference));
  EXPECT_EQ(difference.verdict, Verdict::too_few);
}

Evidence evidence_of(const Design& design) {
  const auto test = metrics::paired_difference(design.method, design.baseline);
  return {.test = test, .p_value = test.p_value, .floor = {}, .tokens = {}, .detectable = 0.3};
}

TEST(Verdicts, TokensTellWhatFewScoresCannot) {
  const Design equal{.method = {1, 0, 1}, .baseline = {1, 0, 1}};
  Evidence evidence = evidence_of(equal);
  EXPECT_EQ(verdict_of(evidence, kScore).verdict, Verdict::too_few);
  evidence.tokens = token_evidence({0, 0, 0}, 0);
  EXPECT_EQ(verdict_of(evidence, kScore).verdict, Verdict::no_difference) << "the answers are the baseline's";
  EXPECT_FALSE(verdict_of(evidence, kScore).detectable);
  EXPECT_EQ(explanation(evidence, kScore), "");
  evidence.tokens = token_evidence({0.7, 0.8, 0.9}, 0);
  EXPECT_EQ(verdict_of(evidence, kScore).verdict, Verdict::too_few) << "tokens have no better or worse";
  EXPECT_NE(explanation(evidence, kScore).find("tokens do differ"), std::string::npos);
  EXPECT_NE(evidence_text(evidence, kScore).find("KL 0.8 (0.7 to 0.9)"), std::string::npos)
      << evidence_text(evidence, kScore);
  evidence.tokens->floor = 1;
  EXPECT_EQ(explanation(evidence, kScore).find("tokens do differ"), std::string::npos) << "so do two runs of full KV";
}

TEST(Verdicts, WithoutAScoreToLoseNoLossIsSeen) {
  const Design nothing{.method = std::vector<double>(20, 0.0), .baseline = std::vector<double>(20, 0.0)};
  EXPECT_EQ(verdict_of(evidence_of(nothing), kScore).verdict, Verdict::too_few);
  const Design full{.method = std::vector<double>(20, 1.0), .baseline = std::vector<double>(20, 1.0)};
  EXPECT_EQ(verdict_of(evidence_of(full), kScore).verdict, Verdict::no_difference);
  EXPECT_NEAR(*verdict_of(evidence_of(full), kScore).detectable, 30, 1e-9);
}

TEST(Detectable, IsNoLessThanTheFewestPairsThatCanShowIt) {
  // One of twenty lost: the spread alone would promise 14 points, of which no test of binary scores finds any.
  Design design{.method = std::vector<double>(20, 1.0), .baseline = std::vector<double>(20, 1.0)};
  design.method[0] = 0;
  const metrics::PairedDifference one = metrics::paired_difference(design.method, design.baseline);
  EXPECT_LT(metrics::minimum_detectable_difference(one.standard_deviation, 20), 0.15);
  EXPECT_NEAR(detectable_difference(std::vector{one}), 0.3, 1e-9);
  const metrics::PairedDifference none = metrics::paired_difference(design.baseline, design.baseline);
  EXPECT_NEAR(detectable_difference(std::vector{none}), 0.3, 1e-9) << "a pair loses its whole score";
  EXPECT_EQ(detectable_difference({}), 0);
  const metrics::PairedDifference few = metrics::paired_difference(std::vector{0.0, 0.0}, std::vector{1.0, 1.0});
  EXPECT_EQ(detectable_difference(std::vector{few}), 0) << "two pairs show nothing";
}

/// A cell of scores with KL for each sample.
CellData cell(const std::string& method, const std::string& workload, const std::vector<double>& scores, double kl) {
  CellData made;
  made.row.cell = {.cell_id = method + workload,
                   .experiment = "e",
                   .model = "m",
                   .workload = workload,
                   .method = method,
                   .method_name = method,
                   .baseline = method == "full"};
  made.row.state = results::CellState::done;
  made.row.done_samples = static_cast<int64_t>(scores.size());
  made.card = {{"metrics", "qa_f1 v1"}};
  for (const auto& [metric, unit] : {std::pair{"qa_f1", "fraction"}, std::pair{"kl_nats", "nats"}})
    made.values.own()[metric] = {.metric = metric, .unit = unit, .rows = {}};
  for (size_t i = 0; i < scores.size(); ++i) {
    const std::string id = fmt::format("s{}", i);
    made.values.own()["qa_f1"].rows.push_back(
        {.sample_id = id, .sample_index = static_cast<int64_t>(i), .value = scores[i]});
    made.values.own()["kl_nats"].rows.push_back(
        {.sample_id = id, .sample_index = static_cast<int64_t>(i), .value = kl});
  }
  return made;
}

const Table& scores_of(const Document& document) {
  for (const Section& section : document.sections) {
    if (section.id == "quality") return section.tables.at(0);
  }
  throw std::runtime_error("no scores");
}

TEST(Verdicts, PooledWorkloadsTellWhatEachAloneCannot) {
  ExperimentData data;
  data.experiment = {.experiment = "e", .title = "E", .table_json = R"({"average": true})"};
  data.definitions["qa_f1"] = {
      .metric = "qa_f1", .title = "F1", .unit = "fraction", .better = results::Direction::higher, .table_scale = 100};
  for (const char* workload : {"a", "b", "c"}) data.cells.push_back(cell("full", workload, {1, 1, 1, 1}, 0));
  for (const char* workload : {"a", "b", "c"}) data.cells.push_back(cell("lossy", workload, {0, 0, 0, 1}, 0.5));
  for (const char* workload : {"a", "b", "c"}) data.cells.push_back(cell("exact", workload, {1, 1, 1, 1}, 0));
  const Document document = experiment_report(data);
  const Table& quality = scores_of(document);
  ASSERT_EQ(quality.columns.back().title, "Mean");
  const std::vector<TableCell>& lossy = quality.rows[1].cells;
  EXPECT_EQ(lossy[1].difference->verdict, Verdict::too_few);
  EXPECT_NE(lossy[1].detail.find("over all workloads of this unit: worse, 12 samples"), std::string::npos)
      << lossy[1].detail;
  EXPECT_EQ(lossy[4].difference->verdict, Verdict::worse) << "nine of twelve lost";
  EXPECT_NEAR(lossy[4].difference->value, -75, 1e-9);
  for (size_t at = 1; at < 5; ++at) EXPECT_EQ(quality.rows[2].cells[at].difference->verdict, Verdict::no_difference);
  const std::string text = render(document, Format::markdown);
  for (const char* part : {"25.0 (0.0 – 75.0) ? −75.0", "▼ −75.0", "≈ 0.0", "The tokens do differ"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("within noise"), std::string::npos);
}

TEST(Verdicts, TheMeanWeighsWorkloadsAlike) {
  ExperimentData data;
  data.experiment.table_json = R"({"average": true})";
  data.definitions["qa_f1"] = {
      .metric = "qa_f1", .title = "F1", .unit = "fraction", .better = results::Direction::higher, .table_scale = 100};
  data.cells = {cell("full", "a", std::vector<double>(30, 1.0), 0), cell("full", "b", std::vector<double>(10, 1.0), 0),
                cell("lossy", "a", std::vector<double>(30, 0.9), 1),
                cell("lossy", "b", std::vector<double>(10, 0.5), 1)};
  const Document document = experiment_report(data);
  const TableCell& mean = scores_of(document).rows.at(1).cells.back();
  EXPECT_NEAR(mean.value, 70, 1e-9);
  EXPECT_NEAR(mean.difference->value, -30, 1e-9);
  EXPECT_EQ(mean.difference->verdict, Verdict::worse);
}

}  // namespace
}  // namespace kvarena::reports
