// Numbers that came over an emulated link say so, wherever a report, a file or a comparison shows them.

#include "reports/emulated.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reports/chart_specs.h"
#include "reports/compare.h"
#include "reports/document.h"
#include "reports/equal_quality.h"
#include "reports/history.h"
#include "reports/latency_charts.h"
#include "reports/sections.h"
#include "reports/settings_charts.h"

namespace kvarena::reports {
namespace {

using nlohmann::json;
using results::CellKind;

constexpr const char* kMeaning = "emu: over an emulated link";
const std::vector<std::string> kFormats = {"html", "md", "tex", "csv"};

bool says(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

/// A cell with a value and a series of each metric on one sample; under "over the link" all are emulated.
CellData cell(const std::string& method, CellKind kind, const std::vector<std::pair<std::string, double>>& values) {
  const auto storage = method == "over the link" ? results::Storage::emulated : results::Storage::real;
  CellData made;
  made.row.state = results::CellState::done;
  made.row.done_samples = 1;
  made.row.cell = {.cell_id = method + std::string(results::name(kind)),
                   .experiment = "e",
                   .kind = kind,
                   .model = "m",
                   .workload = "w",
                   .method = method,
                   .method_name = method,
                   .baseline = method == "full"};
  made.answers.emplace();
  for (const auto& [metric, value] : values) {
    made.values.own()[metric] = {.metric = metric,
                                 .unit = "ms",
                                 .clock = results::Clock::measured,
                                 .storage = storage,
                                 .rows = {{.sample_id = "load 0.5", .value = value},
                                          {.sample_id = "load 0.9", .sample_index = 1, .value = 2 * value}}};
    for (const char* sample : {"load 0.5", "load 0.9"}) {
      const auto number = static_cast<float>(value);
      made.series.own()[metric].push_back(
          {sample, {.name = metric, .values = {number, number + 1, number + 2}, .storage = storage}});
    }
  }
  return made;
}

ExperimentData both(CellKind kind, const std::vector<std::pair<std::string, double>>& values) {
  ExperimentData data;
  data.experiment.experiment = "e";
  data.cells = {cell("full", kind, values), cell("over the link", kind, values)};
  return data;
}

/// Every row's numbers are marked where its first cell names the method that is emulated, and no others.
void expect_marked(const Table& table, size_t first_number) {
  int64_t marked = 0;
  for (const TableRow& row : table.rows) {
    for (size_t at = first_number; at < row.cells.size(); ++at) {
      if (!row.cells[at].has_value()) continue;
      EXPECT_EQ(row.cells[at].emulated, says(row.cells[0].text, "over the link")) << table.columns[at].title;
      marked += row.cells[at].emulated ? 1 : 0;
    }
  }
  EXPECT_GT(marked, 0) << table.id;
}

void expect_marked(const Chart& chart) {
  EXPECT_TRUE(says(chart.spec, "over the link (emu)")) << chart.spec;
  EXPECT_FALSE(says(chart.spec, "full (emu)"));
  EXPECT_TRUE(says(chart_csv(json::parse(chart.spec)), "over the link (emu)"));
  const std::string html = chart_html(chart);
  EXPECT_TRUE(says(html, "over the link (emu)"));
  EXPECT_TRUE(says(html, kMeaning));
}

TEST(EmulatedMark, StandsInEveryFormatOfATableWithItsMeaning) {
  for (const bool emulated : {false, true}) {
    TableCell number = number_cell(41.5);
    number.emulated = emulated;
    const Table table{.id = "t",
                      .title = "T",
                      .caption = "Numbers.",
                      .columns = {{.title = "Method", .numeric = false}, {.title = "Time"}},
                      .rows = {{.cells = {text_cell("a"), number}}}};
    EXPECT_EQ(says(table_html(table), ">emu</abbr>"), emulated);
    EXPECT_EQ(says(table_markdown(table), "41.5 *emu*"), emulated);
    EXPECT_EQ(says(table_latex(table), "\\textit{emu}"), emulated);
    EXPECT_EQ(says(table_csv(table), "Time remark\r\na,41.5,emu"), emulated);
    EXPECT_EQ(says(table_tidy_csv(table), "41.5,,,,,,,,,,emu"), emulated);
    for (const std::string& text : {table_html(table), table_markdown(table), table_latex(table)})
      EXPECT_EQ(says(text, kMeaning), emulated);
  }
}

TEST(EmulatedMark, IsOnTimesOfRequestsUnderLoad) {
  const ExperimentData data = both(CellKind::serving, {{"served_score", 1},
                                                       {"offered_requests_per_s", 2},
                                                       {"mean_time_to_first_token_ms", 30},
                                                       {"time_to_first_token_ms", 30}});
  const auto section = serving_section(data);
  ASSERT_TRUE(section);
  expect_marked(section->tables.at(0), 4);
  bool load = false, distribution = false;
  for (const Chart& chart : section->charts) {
    if (says(chart.id, "arrivals")) continue;  // of the baseline alone
    expect_marked(chart);
    load = load || says(chart.id, "load");
    distribution = distribution || says(chart.id, "latency");
  }
  EXPECT_TRUE(load && distribution);
  for (const std::string& format : kFormats)
    EXPECT_TRUE(says(render({.title = "D", .sections = {*section}}, parse_format(format)), "emu")) << format;
}

TEST(EmulatedMark, IsOnTimesOfStoredContexts) {
  ExperimentData data = both(CellKind::serving, {{"served_score", 1},
                                                 {"memory_hits", 1},
                                                 {"cache_load_ms", 3},
                                                 {"mean_time_to_first_token_ms", 30},
                                                 {"answered_ms", 5},
                                                 {"end_to_end_ms", 40}});
  data.cells[0].values.own().erase("memory_hits");
  const auto section = contexts_section(data);
  ASSERT_TRUE(section);
  expect_marked(section->tables.at(0), 3);
  const auto trade_off =
      std::ranges::find_if(section->charts, [](const Chart& chart) { return chart.id == "contexts-1"; });
  ASSERT_NE(trade_off, section->charts.end());
  EXPECT_TRUE(says(trade_off->spec, "over the link, load 0.5 (emu)"));
  EXPECT_FALSE(says(trade_off->spec, "full, load 0.5 (emu)"));
}

TEST(EmulatedMark, IsOnTimesOfEqualRequests) {
  const ExperimentData data = both(CellKind::timing, {{"time_to_first_token_ms", 100},
                                                      {"prefill_ms", 60},
                                                      {"inter_token_latency_ms", 9},
                                                      {"throughput_tokens_per_s", 50},
                                                      {"link_gb_per_s", 3}});
  const auto speed = speed_section(data);
  ASSERT_TRUE(speed);
  expect_marked(speed->tables.at(0), 2);
  for (const Chart& chart : first_token_charts(data)) expect_marked(chart);
  const auto link = link_section(both(CellKind::quality, {{"link_bytes", 1000}, {"link_ms", 4}}));
  ASSERT_TRUE(link);
  expect_marked(link->tables.at(0), 1);

  ExperimentData scored = data;
  for (const CellData& each : both(CellKind::quality, {{"qa_f1", 0.5}}).cells) scored.cells.push_back(each);
  for (CellData& each : scored.cells) each.card = {{"metrics", "qa_f1 v1"}};
  Section section;
  add_quality_speed(scored, true, section);
  ASSERT_EQ(section.charts.size(), 2U);
  for (const Chart& chart : section.charts) expect_marked(chart);
}

TEST(EmulatedMark, IsOnRatiosAtEqualQuality) {
  const std::vector<ScatterPoint> points = {
      {.series = "a", .label = "a", .x = 10, .y = 1, .emulated = true},
      {.series = "b", .label = "b", .x = 20, .y = 1},
      {.series = "c", .label = "c", .x = 30, .y = 1},
  };
  const auto table = equal_quality_table("t", "ms", "score", points);
  ASSERT_TRUE(table);
  for (const TableRow& row : table->rows) {
    const bool ours = says(row.cells[0].text, "a (emu)"), other = says(row.cells[3].text, "a (emu)");
    EXPECT_FALSE(row.cells[1].emulated);
    EXPECT_EQ(row.cells[2].emulated, ours);
    EXPECT_EQ(row.cells[4].emulated, other);
    EXPECT_EQ(row.cells[5].emulated, ours || other);
  }
  EXPECT_TRUE(says(table_markdown(*table), kMeaning));
}

TEST(EmulatedMark, IsInComparisonsAndHistories) {
  ExperimentData before = both(CellKind::quality, {{"score", 0.5}}), after = both(CellKind::quality, {{"score", 0.25}});
  for (ExperimentData* data : {&before, &after}) {
    for (CellData& each : data->cells) each.card = {{"metrics", "score v1"}};
  }
  const Comparison comparison = compare(before, after, {});
  ASSERT_EQ(comparison.document.sections.size(), 1U);
  const Table& changed = comparison.document.sections[0].tables.at(0);
  ASSERT_EQ(changed.rows.size(), 2U);
  for (const TableRow& row : changed.rows) {
    for (const size_t at : {3, 4}) EXPECT_EQ(row.cells[at].emulated, row.cells[0].text == "over the link");
  }
  for (const std::string& format : kFormats)
    EXPECT_TRUE(says(render(comparison.document, parse_format(format)), "emu")) << format;
  const Document runs = history({{.name = "before", .data = before}, {.name = "after", .data = after}});
  expect_marked(runs.sections.at(0).tables.at(0), 1);
  expect_marked(runs.sections.at(0).charts.at(0));
}

TEST(EmulatedMark, IsBesideWhatPapersPrint) {
  ExperimentData data = both(CellKind::timing, {{"inter_token_latency_ms", 9}});
  for (const char* method : {"full", "over the link"}) {
    data.experiment.published.push_back({.model = "m",
                                         .workload = "w",
                                         .method = method,
                                         .metric = "inter_token_latency_ms",
                                         .value = 8,
                                         .unit = "ms",
                                         .source = "table 1"});
  }
  const auto section = published_section(data);
  ASSERT_TRUE(section);
  for (const TableRow& row : section->tables.at(0).rows) {
    EXPECT_EQ(row.cells[5].emulated, row.cells[0].text == "over the link");
    EXPECT_EQ(row.cells[6].emulated, row.cells[0].text == "over the link");
  }
}

}  // namespace
}  // namespace kvarena::reports
