// Charts of times, from cells in memory.

#include "reports/latency_charts.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "reports/equal_quality.h"

namespace kvarena::reports {
namespace {

using Values = std::vector<std::pair<std::string, double>>;

CellData cell(const std::string& method, results::CellKind kind, const Values& values) {
  CellData made;
  made.row.cell = {.cell_id = method,
                   .experiment = "e",
                   .kind = kind,
                   .model = "m",
                   .workload = "facts",
                   .method = method,
                   .method_name = method,
                   .baseline = method == "full"};
  made.row.state = results::CellState::done;
  made.card = {{"metrics", "qa_f1 v1"}};
  for (const auto& [metric, value] : values) {
    made.values.own()[metric] = {.metric = metric, .unit = "ms", .rows = {{.sample_id = "s", .value = value}}};
  }
  return made;
}

nlohmann::json values_of(const Chart& chart) { return nlohmann::json::parse(chart.spec)["data"]["values"]; }

TEST(FirstToken, PartsAddUpToTheWholeAndReuseHasItsOwn) {
  const ExperimentData data{
      .cells = {cell("full", results::CellKind::timing, {{"prefill_ms", 80}, {"time_to_first_token_ms", 100}}),
                cell("drop", results::CellKind::timing,
                     {{"prefill_ms", 80}, {"compress_ms", 15}, {"time_to_first_token_ms", 100}}),
                cell("reuse", results::CellKind::timing,
                     {{"load_ms", 9},
                      {"score_ms", 2},
                      {"align_ms", 3},
                      {"prefill_ms", 20},
                      {"compress_ms", 26},
                      {"time_to_first_token_ms", 30}})}};
  const std::vector<Chart> charts = first_token_charts(data);
  ASSERT_EQ(charts.size(), 1U);
  std::map<std::string, double> totals;
  std::map<std::string, int> parts;
  for (const nlohmann::json& value : values_of(charts[0])) {
    totals[value["category"]] += value["value"].get<double>();
    ++parts[value["part"]];
    if (value["part"] != "load not hidden") continue;
    EXPECT_EQ(value["value"], 4) << "beside scoring and choosing 5 ms were hidden";
  }
  EXPECT_EQ(totals, (std::map<std::string, double>{{"full", 100}, {"drop", 100}, {"reuse", 30}}));
  EXPECT_EQ(parts["compress"], 1) << "of a method that reuses, what compresses is in the other parts";
  EXPECT_EQ(parts["load not hidden"], 1);
  EXPECT_EQ(parts["rest"], 3);
  EXPECT_TRUE(first_token_charts({.cells = {cell("full", results::CellKind::quality, {{"qa_f1", 1}})}}).empty());
}

TEST(QualitySpeed, HasAPointAMethodThatWasTimedAndScored) {
  const ExperimentData data{
      .cells = {
          cell("full", results::CellKind::quality, {{"qa_f1", 0.8}}),
          cell("drop", results::CellKind::quality, {{"qa_f1", 0.7}}),
          cell("untimed", results::CellKind::quality, {{"qa_f1", 0.9}}),
          cell("full", results::CellKind::timing, {{"time_to_first_token_ms", 100}, {"inter_token_latency_ms", 9}}),
          cell("drop", results::CellKind::timing, {{"time_to_first_token_ms", 110}, {"inter_token_latency_ms", 5}})}};
  Section both, tokens;
  add_quality_speed(data, true, both);
  add_quality_speed(data, false, tokens);
  const std::vector<Chart>& charts = both.charts;
  ASSERT_EQ(charts.size(), 2U);
  EXPECT_EQ(charts[0].spec.find("untimed"), std::string::npos);
  EXPECT_NE(charts[1].spec.find("drop"), std::string::npos);
  ASSERT_EQ(tokens.charts.size(), 1U);
  EXPECT_EQ(tokens.charts[0].title, charts[1].title);
  EXPECT_TRUE(both.tables.empty()) << "neither reaches the other's quality";
  for (const Chart& chart : charts) EXPECT_EQ(chart.spec.find("step-after"), std::string::npos) << "no front of noise";
}

TEST(EqualQuality, TimesAreReadBetweenTheSettingsOfAMethod) {
  // The setting of "sweep" at 40 ms is beaten by the one at 30. Between 10 and 30 ms quality goes from 50 to 90.
  const std::vector<ScatterPoint> points = {{.series = "full", .label = "full", .x = 100, .y = 90},
                                            {.series = "sweep", .label = "sweep 0.5", .x = 30, .y = 90},
                                            {.series = "sweep", .label = "sweep 0.4", .x = 40, .y = 80},
                                            {.series = "sweep", .label = "sweep 0.1", .x = 10, .y = 50},
                                            {.series = "one", .label = "one, alone", .x = 50, .y = 70}};
  EXPECT_EQ(x_at_quality(points, "sweep", 70), 20);
  EXPECT_EQ(x_at_quality(points, "sweep", 95), std::nullopt) << "never reached";
  EXPECT_EQ(x_at_quality(points, "sweep", 40), std::nullopt) << "below what was run";
  EXPECT_EQ(x_at_quality(points, "full", 90), 100);
  const auto table = equal_quality_table("e", "ms", "score", points);
  ASSERT_TRUE(table);
  std::map<std::string, double> ratios;
  for (const TableRow& row : table->rows) ratios[row.cells[0].text + " / " + row.cells[3].text] = row.cells[5].value;
  EXPECT_EQ(ratios, (std::map<std::string, double>{
                        {"full / sweep", 0.3}, {"one, alone / sweep", 0.4}, {"sweep 0.5 / full", 100.0 / 30}}));
}

TEST(LatencyDistribution, RisesToAllRequests) {
  CellData served = cell("full", results::CellKind::serving, {});
  served.series.own()["time_to_first_token_ms"] = {
      {.sample_id = "0.5x", .series = {.name = "time_to_first_token_ms", .values = {30.0F, 10.0F, 20.0F, 40.0F}}}};
  const std::vector<Chart> charts = latency_distribution_charts({.cells = {served}});
  ASSERT_EQ(charts.size(), 1U);
  EXPECT_NE(charts[0].title.find("0.5x"), std::string::npos);
  double last = 0;
  for (const nlohmann::json& value : values_of(charts[0])) {
    EXPECT_GT(value["y"].get<double>(), last);
    last = value["y"];
  }
  EXPECT_EQ(last, 100);
}

}  // namespace
}  // namespace kvarena::reports
