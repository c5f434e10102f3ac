// Distance and bytes by generated length.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "reports/sections.h"

namespace kvarena::reports {
namespace {

results::SeriesRow row(const std::string& sample, const std::string& name, std::vector<float> values) {
  results::SeriesRow made;
  made.sample_id = sample;
  made.series.name = name;
  made.series.values = std::move(values);
  return made;
}

/// Two samples of 64 and 100 steps; bytes grow by 1 a token from 100 on, up to `most`.
CellData cell(const std::string& method, float kl, float most) {
  CellData cell;
  cell.row.state = results::CellState::done;
  cell.row.cell = {.workload = "chains", .method = method, .method_name = method, .baseline = method == "full"};
  for (const size_t steps : {64, 100}) {
    std::vector<float> distance(steps, kl);
    for (size_t i = 32; i < steps; ++i) distance[i] = 3 * kl;
    std::vector<float> bytes;
    for (size_t i = 0; i <= steps; ++i) bytes.push_back(std::min(100 + static_cast<float>(i), most));
    if (most < 200) bytes.back() = most - 1;
    const std::string sample = fmt::format("s{}", steps);
    cell.series.own()["kl_nats"].push_back(row(sample, "kl_nats", distance));
    cell.series.own()["device_bytes"].push_back(row(sample, "device_bytes", bytes));
  }
  return cell;
}

TEST(LengthSection, HasARangeForEachDoubledLengthThatASampleReaches) {
  ExperimentData data;
  data.cells = {cell("full", 0, 1000), cell("evicts", 0.5F, 120)};
  const auto section = length_section(data);
  ASSERT_TRUE(section);
  const Table& table = section->tables.at(0);
  ASSERT_EQ(table.columns.size(), 1U + 2 + 2);  // up to 32 and 64; no sample reaches 128
  EXPECT_EQ(table.columns[2].title, "33 – 64");
  const TableRow& evicts = table.rows.at(1);
  EXPECT_NEAR(evicts.cells[1].value, 0.5, 1e-6);
  EXPECT_NEAR(evicts.cells[2].value, 1.5, 1e-6);
  EXPECT_EQ(evicts.cells[2].samples, 2);
  EXPECT_NEAR(evicts.cells[3].value, 100.0 * 120 / 131, 1e-4);
  EXPECT_NEAR(evicts.cells[4].value, 100.0 * 120 / 163, 1e-4);
}

TEST(LengthSection, ScoredTextsHaveTheirLogProbabilityByPosition) {
  ExperimentData data;
  for (const char* method : {"full", "half"}) {
    CellData& scored = data.cells.emplace_back();
    scored.row.state = results::CellState::done;
    scored.row.cell = {
        .workload = "books", .method = method, .method_name = method, .baseline = data.cells.size() == 1};
    std::vector<float> nll(70, 2);
    std::fill(nll.begin() + 32, nll.end(), data.cells.size() == 1 ? 2.0F : 3.0F);
    scored.series.own()["nll_nats"].push_back(row("s", "nll_nats", nll));
  }
  const auto section = length_section(data);
  ASSERT_TRUE(section);
  const Table& table = section->tables.at(0);
  ASSERT_EQ(table.columns.size(), 3U);  // up to 32 and 64
  EXPECT_EQ(table.rows.at(1).cells[1].value, 2);
  EXPECT_EQ(table.rows.at(1).cells[2].value, 3);
  EXPECT_EQ(table.rows.at(0).cells[2].value, 2);
}

TEST(LengthSection, IsLeftOutWhereNothingIsEvictedWhileDecoding) {
  ExperimentData data;
  data.cells = {cell("full", 0, 1000), cell("prompt alone", 0.5F, 900)};
  EXPECT_FALSE(length_section(data));
}

}  // namespace
}  // namespace kvarena::reports
