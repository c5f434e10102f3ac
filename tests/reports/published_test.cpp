// Published numbers beside ours.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "reports/compare.h"
#include "reports/experiment_report.h"
#include "reports/reproduced.h"
#include "reports/sections.h"
#include "tests/reports/stored_experiment.h"

namespace kvarena::reports {
namespace {

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

/// Rows of the table of published values by their source.
std::map<std::string, std::vector<TableCell>> published_rows(const ExperimentData& data) {
  std::map<std::string, std::vector<TableCell>> rows;
  for (const TableRow& row : table(experiment_report(data), "published").rows) rows[row.cells[8].text] = row.cells;
  return rows;
}

results::PublishedValue printed_as(results::Statistic statistic, const std::string& method, const std::string& metric,
                                   const std::string& unit, double value) {
  return {.model = "m",
          .workload = "facts",
          .method = method,
          .metric = metric,
          .value = value,
          .unit = unit,
          .statistic = statistic,
          .source = fmt::format("{} {}", results::name(statistic), method)};
}

TEST_F(ReportTest, PublishedSharesAndVariationsOfSamplesAreComparedInKind) {
  using enum results::Statistic;
  const auto kept = [](const std::string& label, const std::vector<double>& scores, double share) {
    MethodScores method{label, scores};
    method.kept = share;
    return method;
  };
  // Drops of a are 10, 10, 50 and 30%. Best kept, by score less bytes: a quarter, a quarter, a half, a quarter.
  std::vector<results::PublishedValue> values = {printed_as(best_for, "a", "qa_f1", "percent", 62.5),
                                                 printed_as(best_for, "b", "qa_f1", "percent", 37.5),
                                                 printed_as(best_for, "c", "qa_f1", "percent", 40),
                                                 printed_as(drop_variation, "a", "qa_f1", "fraction", 0.7659),
                                                 printed_as(drop_variation, "full", "qa_f1", "fraction", 1),
                                                 printed_as(best_ratio_variation, "all", "qa_f1", "fraction", 0.1818)};
  values[0].workload = results::kAllWorkloads;
  auto rows = published_rows(experiment("a.db",
                                        {kept("full", {1, 1, 1, 1}, 1), kept("a", {0.9, 0.9, 0.5, 0.7}, 0.25),
                                         kept("b", {0.1, 0.1, 0.6, 0.7}, 0.25), kept("c", {0.8, 0.8, 0.9, 0.7}, 0.5)},
                                        values));
  for (const char* row : {"best for a", "best for b", "drop variation a", "best ratio variation all"})
    EXPECT_EQ(rows[row][7].text, "match") << row;
  EXPECT_EQ(rows["best for a"][1].text, "all");
  EXPECT_EQ(rows["best for c"][7].text, "not comparable: no other method with about as many bytes");
  EXPECT_EQ(rows["drop variation full"][7].text, "not comparable: no variation of one sample, or about 0");
}

TEST_F(ReportTest, PublishedRatiosBetweenSettingsAreAtEqualQualityOrTime) {
  using enum results::Statistic;
  std::vector<MethodScores> cells;
  for (const auto& [label, score, time] : {std::tuple{"full", 1.0, 100.0}, std::tuple{"small", 0.5, 20.0},
                                           std::tuple{"large", 0.9, 60.0}, std::tuple{"mine", 0.7, 25.0}}) {
    cells.push_back({label, {score, score}});
    cells.push_back({label, {time, time}});
    cells.back().kind = results::CellKind::timing;
    cells.back().metric = "time_to_first_token_ms";
  }
  std::vector<results::PublishedValue> values = {
      printed_as(equal_quality, "mine", "time_to_first_token_ms", "×", 1.6),  // 40 ms at 0.7, between 20 and 60
      printed_as(equal_time, "mine", "qa_f1", "percent", 27.3),               // 0.55 at 25 ms
      printed_as(equal_quality, "small", "time_to_first_token_ms", "×", 2),
      printed_as(equal_quality, "large", "time_to_first_token_ms", "×", 2)};
  values[0].against = values[1].against = {"small", "large"};
  values[2].against = {"large", "mine"};
  auto rows = published_rows(experiment("a.db", cells, values));
  EXPECT_EQ(rows["at equal quality mine"][7].text, "match");
  EXPECT_EQ(rows["at equal quality mine"][2].text, "time_to_first_token_ms, at equal quality of small; large");
  EXPECT_EQ(rows["at equal time mine"][7].text, "match");
  EXPECT_EQ(rows["at equal quality small"][7].text, "not comparable: no two of the others lie around its quality");
  EXPECT_EQ(rows["at equal quality large"][7].text, "not comparable: no two of the others lie around its quality")
      << "the baseline alone, which is above it";
}

TEST_F(ReportTest, PublishedRatiosMayBeOverNamedMethods) {
  using enum results::Statistic;
  std::vector<results::PublishedValue> values = {
      printed_as(relative, "mine", "qa_f1", "percent", 150), printed_as(gain, "mine", "qa_f1", "percent", 50),
      printed_as(gain, "rival {n}", "qa_f1", "percent", -50), printed_as(reduction, "mine", "perplexity", "×", 2),
      printed_as(gain, "mine {n}", "qa_f1", "percent", 1)};
  values[0].against = values[1].against = {"rival {n}"};
  values[3].against = {"rival 1", "rival 2"};
  std::vector<MethodScores> cells = {
      {"full", {0.8, 0.8}}, {"rival 1", {0.2, 0.2}}, {"rival 2", {0.4, 0.4}}, {"mine", {0.6, 0.6}}};
  for (MethodScores& cell : cells)
    cell.values = {{.metric = "perplexity", .value = cell.scores[0] * 10, .unit = "perplexity"}};
  cells[3].values[0].value = 1;
  auto rows = published_rows(experiment("a.db", cells, values));
  EXPECT_EQ(rows["relative mine"][7].text, "match") << "over the best, 0.4";
  EXPECT_EQ(rows["relative mine"][2].text, "qa_f1, relative of rival 1; rival 2");
  EXPECT_EQ(rows["gain mine"][7].text, "match");
  EXPECT_EQ(rows["gain rival {n}"][7].text, "match") << "its best setting over the baseline";
  EXPECT_EQ(rows["reduction mine"][7].text, "match") << "the lower perplexity is the best, 2 over 1";
  EXPECT_EQ(rows["gain mine {n}"][7].text, "not comparable: no value here");
}

/// Cells of methods with a score and, timed, a time to the first token and tokens a second.
std::vector<MethodScores> scored_and_timed(const std::vector<std::tuple<std::string, double, double, double>>& all) {
  std::vector<MethodScores> cells;
  for (const auto& [label, score, time, rate] : all) {
    cells.push_back({label, {score, score}});
    cells.push_back({label, {time, time}});
    cells.back().kind = results::CellKind::timing;
    cells.back().metric = "time_to_first_token_ms";
    cells.back().values = {{.metric = "throughput_tokens_per_s", .value = rate, .unit = "tokens/s"}};
  }
  return cells;
}

TEST_F(ReportTest, PublishedDifferencesAreAtEqualRate) {
  using enum results::Statistic;
  std::vector<results::PublishedValue> values = {printed_as(equal_rate, "mine", "qa_f1", "percent", 30),
                                                 printed_as(equal_rate, "fast", "qa_f1", "percent", 30)};
  for (results::PublishedValue& value : values) value.against = {"lossy {keep}"};
  auto rows = published_rows(experiment("a.db",
                                        scored_and_timed({{"full", 1, 90, 10},
                                                          {"lossy 0.5", 0.8, 20, 20},
                                                          {"lossy 0.25", 0.4, 10, 60},
                                                          {"mine", 1, 50, 30},
                                                          {"fast", 1, 50, 70}}),
                                        values));
  EXPECT_EQ(rows["at equal rate mine"][7].text, "match") << "0.7 at 30 tokens/s, between 0.8 at 20 and 0.4 at 60";
  EXPECT_EQ(rows["at equal rate fast"][7].text, "not comparable: no two of the others lie around its rate");
}

TEST_F(ReportTest, PublishedReductionsAreOfTheFastestSettingThatLosesLittle) {
  using enum results::Statistic;
  const auto cells =
      scored_and_timed({{"full", 1, 90, 1}, {"mine 1", 0.98, 45, 1}, {"mine 2", 0.97, 30, 1}, {"mine 3", 0.96, 10, 1}});
  auto rows = published_rows(experiment("a.db", cells,
                                        {printed_as(near_reduction, "mine {alpha}", "time_to_first_token_ms", "×", 3),
                                         printed_as(near_reduction, "mine 3", "time_to_first_token_ms", "×", 9)}));
  EXPECT_EQ(rows["reduction within 3% mine {alpha}"][7].text, "match");
  EXPECT_EQ(rows["reduction within 3% mine 3"][7].text, "not comparable: no setting loses at most 3%");
}

/// A serving cell of a method whose engine asks for a score of 0.8.
CellData served(const std::string& method, const std::vector<std::array<double, 3>>& load_time_and_score) {
  CellData cell;
  cell.row.state = results::CellState::done;
  cell.row.cell = {.kind = results::CellKind::serving, .model = "m", .workload = "facts", .method = method};
  cell.row.cell.engine_json = R"({"score_share": 0.8})";
  cell.row.cell.baseline = method == "full";
  for (const auto& [load, time, score] : load_time_and_score) {
    const std::string point = fmt::format("{}x", load);
    for (const auto& [metric, value] : {std::pair<std::string, double>{"offered_requests_per_s", load},
                                        {"mean_time_to_first_token_ms", time},
                                        {"served_score", score},
                                        {"served_requests_per_s", std::min(load, 3.0)}}) {
      results::ValueColumn& column = cell.values.own()[metric];
      column.metric = metric;
      column.rows.push_back({.sample_id = point, .value = value});
    }
  }
  return cell;
}

TEST_F(ReportTest, PublishedLoadsAreAtEqualTime) {
  using enum results::Statistic;
  ExperimentData data;
  data.cells = {served("full", {{1, 100, 1}, {2, 300, 1}}), served("lossy 1", {{1, 50, 0.9}, {2, 150, 0.9}}),
                served("lossy 2", {{1, 10, 0.7}, {2, 20, 0.7}}),  // below the score that is asked for
                served("mine", {{2, 100, 0.9}, {4, 300, 0.9}})};
  auto printed = printed_as(equal_time_load, "mine", "mean_time_to_first_token_ms", "×", 0);
  EXPECT_NEAR(ours_of(data, printed).value, 2, 1e-12) << "at 100 ms 2 over 1 and at 300 ms 4 over 2, of the baseline";
  printed.against = {"lossy 1", "lossy 2"};
  // At 100 ms 2 over 1.5, at 150 ms 2.5 over 2; at 50 and 300 ms one of the two has no load.
  EXPECT_NEAR(ours_of(data, printed).value, (2 / 1.5 + 2.5 / 2) / 2, 1e-12);
  EXPECT_EQ(ours_of(data, printed).samples, 2U);
  printed.against = {"lossy 2"};
  EXPECT_EQ(ours_of(data, printed).missing, "no latency that both reach");
  printed.workload = std::string(results::kAllWorkloads);
  printed.against = {};
  EXPECT_NEAR(ours_of(data, printed).value, 2, 1e-12);
  printed.metric = "served_requests_per_s";
  printed.statistic = relative;
  EXPECT_NEAR(ours_of(data, printed).value, 1.5, 1e-12) << "the most that is served, 3 over 2";
}

TEST_F(ReportTest, PublishedValuesUnderLoadAreOfOneLoad) {
  const auto served = [](const std::string& label, const std::vector<double>& values) {
    MethodScores method{label, values};
    method.kind = results::CellKind::serving;
    method.metric = "mean_end_to_end_ms";
    return method;
  };
  const std::string metric = "mean_end_to_end_ms";
  auto rows = published_rows(experiment("a.db", {served("full", {200}), served("mine", {100}), served("two", {1, 2})},
                                        {printed_as(results::Statistic::mean, "full", metric, metric, 200),
                                         printed_as(results::Statistic::reduction, "mine", metric, "×", 2),
                                         printed_as(results::Statistic::mean, "two", metric, metric, 1.5)}));
  EXPECT_EQ(rows["mean full"][7].text, "match");
  EXPECT_EQ(rows["reduction mine"][7].text, "match");
  EXPECT_EQ(rows["mean two"][7].text, "not comparable: of one load, 2 were run");
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

}  // namespace
}  // namespace kvarena::reports
