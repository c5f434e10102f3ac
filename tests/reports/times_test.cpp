// Times that a report shows.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "reports/report_charts.h"
#include "reports/sections.h"
#include "reports/settings_charts.h"
#include "reports/timing.h"
#include "tests/reports/stored_experiment.h"

namespace kvarena::reports {
namespace {

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
    for (results::SeriesRow& row : cell.series.own()["inter_token_latency_ms"]) {
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

TEST_F(ReportTest, BatchesStandBesideTimesWhereRequestsWereTimedTogether) {
  const auto timed = [](const std::string& label, double batch) {
    MethodScores method{label, scores(2, batch)};
    method.kind = results::CellKind::timing;
    method.metric = "batch_requests";
    method.itl = {10, 11, 12};
    return method;
  };
  const Table alone = table(experiment_report(experiment("a.db", {timed("full", 1), timed("fast", 1)})), "speed");
  const Table batched = table(experiment_report(experiment("b.db", {timed("full", 1), timed("fast", 16)})), "speed");
  EXPECT_NE(alone.columns.back().title, "Batch");
  EXPECT_EQ(batched.columns.back().title, "Batch");
  EXPECT_EQ(batched.rows[0].cells.back().value, 1);
  EXPECT_EQ(batched.rows[1].cells.back().value, 16);
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
    data.series.own()[metric].push_back(
        {.sample_id = std::to_string(i), .series = {.name = metric, .values = repeats[i]}});
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

TEST_F(ReportTest, ModelledTimesStandUnderANameOfTheirOwn) {
  const std::string card = R"({"metrics": "qa_f1 v1", "dtype": "bf16"})";
  const auto data =
      experiment("a.db", {{"full", scores(3, 0.9), card, true, "", "m", false, results::Clock::measured},
                          {"fast", scores(3, 0.9), card, true, "", "m", false, results::Clock::modelled}});
  EXPECT_EQ(data.cells[0].numbers("wait_ms").size(), 3U);
  EXPECT_TRUE(data.cells[1].numbers("wait_ms").empty());
  EXPECT_EQ(data.cells[1].numbers("wait_ms (modelled)").size(), 3U);
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

TEST_F(ReportTest, ARateInLimitedMemorySaysByWhichTermItDiffers) {
  const auto of = [](const std::string& label, double rate, double tokens, double milliseconds) {
    MethodScores method{label, scores(1, 4)};
    method.kind = results::CellKind::timing;
    method.metric = "concurrent_requests";
    for (const auto& [metric, value] :
         {std::pair{"throughput_tokens_per_s", rate}, std::pair{"tokens_per_pass", tokens},
          std::pair{"mean_pass_ms", milliseconds}}) {
      method.values.push_back({.metric = metric, .value = value, .clock = results::Clock::measured});
    }
    return method;
  };
  const Table memory = table(experiment_report(experiment("a.db", {of("full", 200, 4, 20), of("fast", 150, 6, 40)})),
                             "verification-runtime");
  ASSERT_EQ(memory.rows.size(), 2U);
  EXPECT_TRUE(memory.rows[0].cells[2].notes.empty());
  ASSERT_EQ(memory.rows[1].cells[2].notes.size(), 1U);
  EXPECT_EQ(memory.footnotes.at(memory.rows[1].cells[2].notes.front()),
            "0.75× the rate of full: a pass gives 1.50× the tokens and takes 2.00× the time.");
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
      results.push_back(
          {.cell_id = "s",
           .sample_id = point,
           .sample_index = static_cast<int64_t>(results.size()),
           .values =
               {{.metric = "served_score", .value = 1, .unit = "fraction"},
                {.metric = "offered_requests_per_s",
                 .value = rate,
                 .unit = "requests/s",
                 .clock = results::Clock::measured},
                {.metric = "mean_time_to_first_token_ms",
                 .value = ttft,
                 .unit = "ms",
                 .clock = results::Clock::measured},
                {.metric = "mean_end_to_end_ms", .value = 3 * ttft, .unit = "ms", .clock = results::Clock::measured},
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
  EXPECT_EQ(serving.columns[12].group, "Whole answer");
  EXPECT_EQ(serving.rows[1].cells[12].value, 2700);
  EXPECT_FALSE(serving.rows[3].cells[12].has_value());
  std::vector<std::string> charts;
  for (const Section& section : document.sections) {
    if (section.id != "serving") continue;
    for (const Chart& chart : section.charts) charts.push_back(chart.id);
  }
  ASSERT_GE(charts.size(), 3U);
  EXPECT_EQ(charts[0], "load-1");
  EXPECT_EQ(charts[1], "load-whole-1");
  EXPECT_EQ(charts[2], "arrivals-1");
}

}  // namespace
}  // namespace kvarena::reports
