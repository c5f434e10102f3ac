// Charts of times, from cells in memory.

#include "reports/latency_charts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
    made.values[metric] = {.metric = metric, .unit = "ms", .rows = {{.sample_id = "s", .value = value}}};
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
                     {{"load_ms", 1},
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
  }
  EXPECT_EQ(totals, (std::map<std::string, double>{{"full", 100}, {"drop", 100}, {"reuse", 30}}));
  EXPECT_EQ(parts["compress"], 1) << "of a method that reuses, what compresses is in the other parts";
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
  const std::vector<Chart> charts = quality_speed_charts(data, true);
  ASSERT_EQ(charts.size(), 2U);
  EXPECT_EQ(charts[0].spec.find("untimed"), std::string::npos);
  EXPECT_NE(charts[1].spec.find("drop"), std::string::npos);
  ASSERT_EQ(quality_speed_charts(data, false).size(), 1U);
  EXPECT_EQ(quality_speed_charts(data, false)[0].title, charts[1].title);
  for (const Chart& chart : charts) EXPECT_EQ(chart.spec.find("step-after"), std::string::npos) << "no front of noise";
}

TEST(LatencyDistribution, RisesToAllRequests) {
  CellData served = cell("full", results::CellKind::serving, {});
  served.series["time_to_first_token_ms"] = {
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
