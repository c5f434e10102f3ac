// All methods at equal resident bytes.

#include "reports/equal_bytes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/core/error.h"
#include "reports/experiment_report.h"

namespace kvarena::reports {
namespace {

/// A cell of ten samples, or of `samples`.
CellData cell(const std::string& label, const std::string& method, double share, double distance,
              const std::string& settings = "{}", int64_t samples = 10) {
  CellData made;
  made.row.cell = {.cell_id = label,
                   .experiment = "e",
                   .model = "m",
                   .workload = "facts",
                   .method = label,
                   .method_name = method,
                   .settings_json = settings,
                   .baseline = method == "full"};
  made.row.state = results::CellState::done;
  made.row.done_samples = samples;
  made.card = {{"metrics", "qa_f1 v1"}};
  const auto column = [&](const char* metric, const char* unit, double value) {
    results::ValueColumn values{.metric = metric, .unit = unit};
    for (int64_t i = 0; i < samples; ++i)
      values.rows.push_back(
          {.sample_id = std::string("s").append(std::to_string(i)), .sample_index = i, .value = value});
    made.values.own()[metric] = values;
  };
  column("kept_bytes_fraction", "fraction", share);
  column("kl_nats", "nats", distance);
  column("qa_f1", "fraction", 0.5);
  return made;
}

ExperimentData experiment(std::vector<CellData> cells) {
  ExperimentData data;
  data.experiment = {.experiment = "e", .title = "E"};
  data.definitions["kept_bytes_fraction"] = {.metric = "kept_bytes_fraction",
                                             .title = "Share",
                                             .unit = "fraction",
                                             .better = results::Direction::lower,
                                             .table_scale = 100};
  data.definitions["qa_f1"] = {
      .metric = "qa_f1", .title = "F1", .unit = "fraction", .better = results::Direction::higher, .table_scale = 100};
  data.cells = std::move(cells);
  return data;
}

const Table* find_table(const Document& document, const std::string& id) {
  for (const Section& section : document.sections) {
    for (const Table& table : section.tables) {
      if (table.id == id) return &table;
    }
  }
  return nullptr;
}

TEST(EqualBytes, EachMethodStandsWithItsLargestSettingWithinTheBudgetBestFirst) {
  const Document document = equal_bytes_report(
      experiment({cell("full", "full", 1, 0), cell("drop 0.5", "drop", 0.5, 0.01), cell("drop 0.25", "drop", 0.25, 0.4),
                  cell("drop 0.1", "drop", 0.1, 0.2), cell("pack 4", "pack", 0.28, 0.05)}),
      {0.285});
  const Table* ranking = find_table(document, "ranking");
  ASSERT_NE(ranking, nullptr);
  ASSERT_EQ(ranking->rows.size(), 2U);
  EXPECT_EQ(ranking->rows[0].cells[3].text, "pack 4");
  EXPECT_EQ(ranking->rows[1].cells[3].text, "drop 0.25") << "the most bytes within the budget, not the best score";
  EXPECT_NEAR(ranking->rows[1].cells[4].value, 25, 1e-9);
  const Table* scores = find_table(document, "ranking-workloads");
  ASSERT_NE(scores, nullptr);
  ASSERT_EQ(scores->rows.size(), 3U) << "full KV and the two that are ranked";
  EXPECT_EQ(scores->rows[0].cells[0].text, "full");
  EXPECT_EQ(scores->rows[0].cells[3].value, 50);
  EXPECT_DOUBLE_EQ(scores->rows[2].cells[1].value, 0.4);
  EXPECT_EQ(scores->rows[2].cells[3].value, 50);
  EXPECT_EQ(find_table(document, "beyond"), nullptr);
  for (const Format format : {Format::html, Format::markdown, Format::latex, Format::csv})
    EXPECT_FALSE(render(document, format).empty());
}

TEST(EqualBytes, ACodecOverADroppingMethodIsAMethodOfItsOwn) {
  const std::string over = R"({"over": {"name": "drop", "keep": 0.5}})";
  const Document document =
      equal_bytes_report(experiment({cell("full", "full", 1, 0), cell("int8", "int8", 0.53, 0.001),
                                     cell("int8 over drop", "int8", 0.27, 0.1, over)}),
                         {0.285});
  EXPECT_EQ(find_table(document, "ranking")->rows[0].cells[2].text, "int8 over drop");
  EXPECT_EQ(find_table(document, "beyond")->rows[0].cells[1].text, "int8");
}

TEST(EqualBytes, WhatHoldsMoreAndWhatFailedIsListedNotRanked) {
  CellData broken = cell("broken", "broken", 0, 0);
  broken.row.state = results::CellState::failed;
  broken.row.reason = "out of memory";
  const Document document = equal_bytes_report(experiment({cell("full", "full", 1, 0), cell("drop", "drop", 0.25, 0.4),
                                                           cell("select", "select", 1.05, 0.01), std::move(broken)}),
                                               {0.285});
  const Table* beyond = find_table(document, "beyond");
  ASSERT_NE(beyond, nullptr);
  ASSERT_EQ(beyond->rows.size(), 2U);
  EXPECT_NEAR(beyond->rows[0].cells[2].value, 105, 1e-9);
  EXPECT_EQ(beyond->rows[1].cells[2].reason, "out of memory");
}

TEST(EqualBytes, ProtocolsAreRankedApartAndTheirOrdersCompared) {
  std::vector<CellData> cells;
  const auto add = [&](const std::string& question, const char* workload, double a, double b, double c) {
    for (const auto& [label, distance] :
         {std::pair{"full", 0.0}, std::pair{"a", a}, std::pair{"b", b}, std::pair{"c", c}}) {
      CellData one = cell(label, label, label == std::string("full") ? 1 : 0.25, distance);
      one.row.cell.workload = workload + (", " + question);
      one.card.emplace_back("question", question);
      cells.push_back(std::move(one));
    }
  };
  add("seen", "facts", 0.125, 0.25, 0.375);
  add("seen", "calls", 0.125, 0.375, 0.25);
  add("unseen", "facts", 0.375, 0.25, 0.125);
  const Document document = equal_bytes_report(experiment(std::move(cells)), {0.3});
  const Table* seen = find_table(document, "ranking-question-seen");
  const Table* unseen = find_table(document, "ranking-question-unseen");
  ASSERT_TRUE(seen != nullptr && unseen != nullptr);
  EXPECT_EQ(seen->rows[0].cells[2].text, "a");
  EXPECT_EQ(seen->rows[0].cells[1].text, "1 – 1");
  EXPECT_EQ(seen->rows[1].cells[1].text, "2 – 3") << "which workload's samples are drawn decides";
  EXPECT_EQ(unseen->rows[0].cells[2].text, "c");
  const Table* by_workload = find_table(document, "ranking-workloads-question-seen");
  ASSERT_NE(by_workload, nullptr);
  EXPECT_EQ(by_workload->columns[1].group, "facts, seen");
  EXPECT_EQ(by_workload->rows[2].cells[0].text, "b");
  EXPECT_EQ(by_workload->rows[2].cells[1].value, 0.25);
  EXPECT_EQ(by_workload->rows[2].cells[2].text, "2 – 2");
  EXPECT_EQ(by_workload->rows[2].cells[5].text, "3 – 3");
  const Table* overview = find_table(document, "overview");
  ASSERT_NE(overview, nullptr);
  EXPECT_EQ(overview->columns[1].group, "at most 30%");
  EXPECT_EQ(overview->columns[2].title, "unseen");
  EXPECT_EQ(overview->rows[1].cells[0].text, "b") << "2nd and 2nd; the others are 1st and 3rd";
  EXPECT_EQ(overview->rows[1].cells[1].value, 0.3125);
  const Table* agreement = find_table(document, "agreement");
  ASSERT_NE(agreement, nullptr);
  ASSERT_EQ(agreement->rows.size(), 2U) << "seen beside unseen, facts beside calls";
  EXPECT_NEAR(agreement->rows[0].cells[3].value, -2 / std::sqrt(6), 1e-12) << "b and c are equally far in the mean";
  EXPECT_NEAR(agreement->rows[1].cells[3].value, 1.0 / 3, 1e-12);
}

TEST(LargeReport, OfAHundredThousandSamples) {
  std::vector<CellData> cells;
  for (const char* label : {"full", "a", "b", "c", "d"}) cells.push_back(cell(label, label, 0.5, 0.1, "{}", 20'000));
  const Document document = experiment_report(experiment(std::move(cells)));
  EXPECT_EQ(find_table(document, "quality")->rows.size(), 5U);
  for (const Format format : {Format::html, Format::csv}) EXPECT_FALSE(render(document, format).empty());
}

TEST(NeedleGrid, IsDrawnAsAHeatMapAMethodWhereSamplesAreAGrid) {
  ExperimentData data = experiment({cell("full", "full", 1, 0), cell("drop", "drop", 0.25, 0.4)});
  const auto maps = [&] {
    int64_t found = 0;
    for (const Section& section : experiment_report(data).sections)
      found += section.id == "needle" ? std::ssize(section.charts) : 0;
    return found;
  };
  EXPECT_EQ(maps(), 0);
  for (CellData& one : data.cells) {
    std::vector<results::ValueRow>& rows = one.values.own()["qa_f1"].rows;
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i].sample_id =
          std::string("length-").append(std::to_string(1000 * (i % 5 + 1))).append(i < 5 ? "-depth-0" : "-depth-37.5");
  }
  EXPECT_EQ(maps(), 2);
  EXPECT_NE(render(experiment_report(data), Format::html).find("37.5"), std::string::npos);
}

TEST(EqualBytes, RefusesWhatItCannotRank) {
  EXPECT_THROW((void)equal_bytes_report(experiment({cell("full", "full", 1, 0), cell("d", "d", 0.5, 0.1)}), {0.1}),
               UserError);
  EXPECT_THROW((void)equal_bytes_report(experiment({cell("full", "full", 1, 0), cell("d", "d", 0.2, 0.1)}), {0.5, 0.3}),
               UserError)
      << "nothing between the two";
}

TEST(EqualBytes, ComparesOnSamplesThatAllHave) {
  CellData far = cell("far", "far", 0.25, 0.25);
  for (int64_t i = 4; i < 10; ++i) far.values.own()["kl_nats"].rows[static_cast<size_t>(i)].value = 0;
  const Document document = equal_bytes_report(
      experiment({cell("full", "full", 1, 0), std::move(far), cell("near", "near", 0.25, 0.125, "{}", 4)}), {0.3});
  const Table* ranking = find_table(document, "ranking");
  ASSERT_NE(ranking, nullptr);
  EXPECT_EQ(ranking->rows[0].cells[3].text, "near") << "0.125 for 0.25 where both were judged, 0.1 in the mean of ten";
  EXPECT_NEAR(ranking->rows[1].cells[5].value, 0.25, 1e-12);
  EXPECT_EQ(ranking->rows[1].cells[5].detail, "4 samples");
}

TEST(EqualBytes, RanksHaveIntervalsFromSixSamplesAWorkloadOn) {
  const auto first_place = [](int64_t samples) {
    const Document document = equal_bytes_report(
        experiment({cell("full", "full", 1, 0, "{}", samples), cell("a", "a", 0.25, 0.1, "{}", samples),
                    cell("b", "b", 0.25, 0.2, "{}", samples)}),
        {0.3});
    const TableRow& row = find_table(document, "ranking")->rows[0];
    EXPECT_EQ(row.cells[5].interval.has_value(), samples >= 6);
    return row.cells[1].text;
  };
  EXPECT_EQ(first_place(5), "");
  EXPECT_EQ(first_place(6), "1 – 1");
}

TEST(EqualBytes, SharesAreOfLayersWithoutAWindow) {
  const auto with_window = [](CellData made, double resident, double sliding) {
    for (const auto& [metric, value] : {std::pair("resident_bytes", resident), std::pair("sliding_bytes", sliding)}) {
      results::ValueColumn values = made.values->at("kept_bytes_fraction");
      for (results::ValueRow& row : values.rows) row.value = value;
      made.values.own()[metric] = std::move(values);
    }
    return made;
  };
  const Document document = equal_bytes_report(
      experiment({with_window(cell("full", "full", 1, 0), 1000, 600),
                  with_window(cell("drop", "drop", 0.7, 0.1), 700, 600),     // 100 of 400
                  with_window(cell("every", "every", 0.55, 0.2), 550, 450),  // the same, and less of the windows
                  with_window(cell("half", "half", 0.8, 0.1), 800, 600)}),
      {0.3});
  const Table* ranking = find_table(document, "ranking");
  ASSERT_NE(ranking, nullptr);
  ASSERT_EQ(ranking->rows.size(), 2U);
  EXPECT_NEAR(ranking->rows[0].cells[4].value, 25, 1e-9);
  EXPECT_NEAR(ranking->rows[1].cells[4].value, 25, 1e-9);
  const Table* beyond = find_table(document, "beyond");
  ASSERT_NE(beyond, nullptr);
  EXPECT_NEAR(beyond->rows[0].cells[2].value, 50, 1e-9);
}

TEST(EqualBytes, ProtectedSettingsAreRankedApart) {
  const std::string kept = R"({"keep": 0.25, "protect_sinks": 4, "protect_window": 64})";
  const Document document = equal_bytes_report(
      experiment({cell("full", "full", 1, 0), cell("a", "a", 0.25, 0.5), cell("b", "b", 0.25, 0.25),
                  cell("c", "c", 0.25, 0.75), cell("pack", "pack", 0.25, 0.125), cell("a kept", "a", 0.25, 0.125, kept),
                  cell("b kept", "b", 0.25, 0.25, kept), cell("c kept", "c", 0.25, 0.75, kept),
                  cell("a half", "a", 0.5, 0.125), cell("a half kept", "a", 0.5, 0.125, kept)}),
      {0.3, 0.55});
  const Table* published = find_table(document, "ranking-at-most-30-as-published");
  const Table* guarded = find_table(document, "ranking-at-most-30-4-sinks-and-the-64-newest-protected");
  ASSERT_TRUE(published != nullptr && guarded != nullptr);
  EXPECT_EQ(find_table(document, "ranking-at-most-55-4-sinks-and-the-64-newest-protected"), nullptr) << "one alone";
  ASSERT_EQ(published->rows.size(), 4U);
  EXPECT_EQ(published->rows[1].cells[3].text, "b");
  ASSERT_EQ(guarded->rows.size(), 3U) << "what has no such setting is ranked as published alone";
  EXPECT_EQ(guarded->rows[0].cells[3].text, "a kept");
  const Table* agreement = find_table(document, "agreement");
  ASSERT_NE(agreement, nullptr);
  const TableRow& last = agreement->rows.back();
  EXPECT_EQ(last.cells[1].text, "at most 30%, 4 sinks and the 64 newest protected");
  EXPECT_EQ(last.cells[2].value, 3) << "methods that both orders hold";
  EXPECT_NEAR(last.cells[3].value, 1.0 / 3, 1e-12);
}

TEST(EqualBytes, ModelsAndBudgetsAreRankedApartAndTheirOrdersCompared) {
  std::vector<CellData> cells;
  const auto add = [&](const char* model, const char* label, const char* method, double share, double distance) {
    cells.push_back(cell(label, method, share, distance));
    cells.back().row.cell.model = model;
  };
  for (const char* model : {"small", "large"}) {
    const bool small = model == std::string("small");
    add(model, "full", "full", 1, 0);
    add(model, "a half", "a", 0.5, 0.125);
    add(model, "b half", "b", 0.5, 0.25);
    add(model, "a quarter", "a", 0.25, small ? 0.5 : 0.25);
    add(model, "b quarter", "b", 0.25, small ? 0.25 : 0.5);
  }
  const Document document = equal_bytes_report(experiment(std::move(cells)), {0.3, 0.55});
  const auto first = [&](const char* id) {
    const Table* table = find_table(document, id);
    return table == nullptr ? "no table " + std::string(id) : table->rows[0].cells[3].text;
  };
  EXPECT_EQ(first("ranking-small-at-most-55"), "a half");
  EXPECT_EQ(first("ranking-small-at-most-30"), "b quarter");
  EXPECT_EQ(first("ranking-large-at-most-55"), "a half");
  EXPECT_EQ(first("ranking-large-at-most-30"), "a quarter");
  const Table* agreement = find_table(document, "agreement");
  ASSERT_NE(agreement, nullptr);
  std::vector<std::string> pairs;
  for (const TableRow& row : agreement->rows)
    pairs.push_back(row.cells[0].text + " | " + row.cells[1].text + " | " + std::to_string(row.cells[3].value));
  EXPECT_EQ(pairs, (std::vector<std::string>{"small, at most 55% | small, at most 30% | -1.000000",
                                             "large, at most 55% | large, at most 30% | 1.000000",
                                             "small, at most 55% | large, at most 55% | 1.000000",
                                             "small, at most 30% | large, at most 30% | -1.000000"}));
}

}  // namespace
}  // namespace kvarena::reports
