// The shape that a config gives its table, and what its cells show.

#include "reports/table_shape.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "harness/core/error.h"
#include "reports/cell_text.h"
#include "tests/support/error_of.h"

namespace kvarena::reports {
namespace {

const MetricLook kScore{.title = "F1", .unit = "%", .scale = 100, .better = Better::higher};

/// Two models, two methods, two workloads: the value tells the place.
std::vector<PlacedCell> cells() {
  std::vector<PlacedCell> all;
  for (const double model : {1, 2}) {
    for (const double method : {1, 2}) {
      for (const double workload : {1, 2}) {
        const double value = 100 * model + 10 * method + workload;
        TableCell cell = number_cell(value, metrics::Interval{value - 2, value + 4});
        cell.samples = 20;
        cell.difference = Difference{.value = -3, .interval = {-5, -1}, .verdict = Verdict::worse};
        all.push_back({.place = {{"experiment", "e"},
                                 {"model", model == 1 ? "small" : "large"},
                                 {"workload", workload == 1 ? "facts" : "calls"},
                                 {"method", method == 1 ? "full" : "lossy"},
                                 {"metric", "qa_f1"}},
                       .cell = cell,
                       .look = kScore});
      }
    }
  }
  return all;
}

const Table kFrame{.id = "quality", .title = "Quality", .caption = "Scores."};

std::vector<Table> shaped(const std::string& shape) { return shape_tables(cells(), read_shape(shape), kFrame, {}, {}); }

/// Texts and values of a row, joined.
std::string row_text(const Table& table, size_t at) {
  std::string text;
  for (const TableCell& cell : table.rows[at].cells)
    text += (text.empty() ? "" : " ") + (cell.kind == CellKind::text ? cell.text : full_precision(cell.value));
  return text;
}

std::string printed(const std::string& format, const TableCell& cell) {
  std::string text;
  for (const auto& line : cell_lines(cell, {.title = "x"}, format)) {
    for (const CellPart& part : line) text += part.before + part.text + part.after;
    text += '|';
  }
  return text;
}

TEST(TableShape, HasDefaultsForWhatADatabaseLacks) {
  const TableShape shape = read_shape("{}");
  EXPECT_EQ(shape.rows, (std::vector<std::string>{"model", "method"}));
  EXPECT_EQ(shape.columns, std::vector<std::string>{"workload"});
  EXPECT_EQ(shape.cell, kUsualCell);
  EXPECT_FALSE(shape.average);
}

TEST(TableShape, WhatNoConfigCouldHaveSaidIsRefused) {
  for (const char* shape :
       {R"({"rows": 3})", R"({"columns": ["depth"]})", R"({"rows": [""]})", R"({"average": "no"})"}) {
    EXPECT_EQ(testing::error_of([&] { (void)read_shape(shape); }),
              fmt::format("the experiment's table_json: found {}, expected the block \"table\" of a config", shape));
  }
}

TEST(TableShape, RowsAndColumnsAreTheDimensionsThatItNames) {
  const std::vector<Table> tables = shaped("{}");
  ASSERT_EQ(tables.size(), 1U);
  ASSERT_EQ(tables[0].rows.size(), 4U);
  EXPECT_EQ(tables[0].columns[0].title, "Model");
  EXPECT_EQ(tables[0].columns[2].title, "facts");
  EXPECT_EQ(tables[0].columns[2].unit, "qa_f1, %");
  EXPECT_EQ(row_text(tables[0], 3), "large lossy 221 222");
  const std::vector<Table> turned = shaped(R"({"rows": ["workload"], "columns": ["model", "method"]})");
  ASSERT_EQ(turned.size(), 1U);
  EXPECT_EQ(turned[0].columns[2].group, "small");
  EXPECT_EQ(turned[0].columns[2].title, "lossy");
  EXPECT_EQ(row_text(turned[0], 1), "calls 112 122 212 222");
}

TEST(TableShape, WhatNothingNamesMakesTablesOfTheirOwn) {
  const std::vector<Table> tables = shaped(R"({"rows": ["method"], "columns": ["workload"]})");
  ASSERT_EQ(tables.size(), 2U);
  EXPECT_EQ(tables[1].id, "quality-large");
  EXPECT_EQ(tables[1].title, "Quality, large");
  EXPECT_EQ(row_text(tables[1], 0), "full 211 212");
}

TEST(TableShape, AveragesWhereItIsAskedToAndNumbersAreReadAlike) {
  EXPECT_EQ(shaped("{}")[0].columns.size(), 4U);
  const Table with = shaped(R"({"average": true})")[0];
  EXPECT_EQ(with.columns.back().title, "Mean");
  EXPECT_EQ(with.rows[0].cells.back().value, 111.5);
  std::vector<PlacedCell> unlike = cells();
  unlike[0].look.unit = "nats";
  const Table without = shape_tables(unlike, read_shape(R"({"average": true})"), kFrame, {}, {})[0];
  EXPECT_EQ(without.columns.size(), 4U);
  EXPECT_NE(without.caption.find("not read alike"), std::string::npos);
}

TEST(TableShape, MethodColumnsStandBesideScoresWhereMethodsMakeRows) {
  MethodColumn bytes{.column = {.title = "Resident"}, .cells = {{method_key("small", "lossy"), number_cell(25)}}};
  const Table beside = shape_tables(cells(), read_shape("{}"), kFrame, {bytes}, {})[0];
  EXPECT_EQ(beside.columns[4].title, "Resident");
  EXPECT_EQ(beside.rows[0].cells[4].kind, CellKind::empty);
  EXPECT_EQ(beside.rows[1].cells[4].value, 25);
  const std::string turned = R"({"rows": ["workload"], "columns": ["model", "method"]})";
  EXPECT_EQ(shape_tables(cells(), read_shape(turned), kFrame, {bytes}, {})[0].columns.size(), 5U);
}

TEST(TableShape, OnlyPeersCompeteForTheBest) {
  std::vector<PlacedCell> some = cells();
  for (PlacedCell& cell : some) {
    cell.cell.interval.reset();
    cell.peers = cell.place.at("model") == "small" ? 0 : -1;
  }
  const Table table = shape_tables(some, read_shape("{}"), kFrame, {}, {})[0];
  EXPECT_TRUE(table.rows[1].cells[2].best);
  EXPECT_FALSE(table.rows[0].cells[2].best);
  EXPECT_FALSE(table.rows[3].cells[2].best);
}

TEST(TableShape, EveryWriterShowsWhatTheCellNamesAndNothingElse) {
  const auto writers = [](const Table& table) {
    return std::vector<std::string>{table_html(table), table_markdown(table), table_latex(table), table_csv(table),
                                    table_tidy_csv(table)};
  };
  const Table usual = shaped("{}")[0];
  for (const std::string& text : writers(usual)) EXPECT_NE(text.find("109"), std::string::npos) << text;
  const Table plain = shaped(R"({"cell": "{mean}"})")[0];
  for (const std::string& text : writers(plain)) {
    EXPECT_EQ(text.find("109"), std::string::npos) << text;
    EXPECT_EQ(text.find("worse"), std::string::npos) << text;
    EXPECT_EQ(text.find("20,"), std::string::npos) << text;
  }
  const Table counted = shaped(R"({"cell": "{mean} of {n}"})")[0];
  for (const std::string& text : writers(counted)) EXPECT_NE(text.find("20"), std::string::npos) << text;
}

TEST(CellText, LeavesOutWordsWithoutNumbersAndTheTextBeforeThem) {
  TableCell cell = number_cell(61.25, metrics::Interval{55, 66.5});
  EXPECT_EQ(printed("{mean} ± {interval}", cell), "61.2 ± 5.8|");
  EXPECT_EQ(printed(kUsualCell, cell), "61.2|(55.0 – 66.5)|");
  cell.interval.reset();
  EXPECT_EQ(printed("{mean} ± {interval}", cell), "61.2|");
  EXPECT_EQ(printed("{mean} ({n})", cell), "61.2|");
  cell.samples = 8;
  cell.published = 60;
  EXPECT_EQ(printed("{mean} ({n})\n{published}", cell), "61.2 (8)|60.0|");
  EXPECT_THROW((void)printed("{maen}", cell), UserError);
}

}  // namespace
}  // namespace kvarena::reports
