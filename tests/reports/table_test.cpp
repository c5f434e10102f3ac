#include "reports/table.h"

#include <gtest/gtest.h>

#include "harness/core/error.h"

namespace kvarena::reports {
namespace {

const std::string kHostile = "<script>alert(1)</script> & \"quotes\" | pipe_under $math$ \\cmd, comma";

Table sample_table() {
  Table table{.id = "t",
              .title = "Title",
              .caption = "Caption",
              .columns = {{.title = "Method", .numeric = false}, {.title = "Score", .better = Better::higher}}};
  table.rows.push_back({.cells = {text_cell("full"), number_cell(70.0)}, .role = RowRole::baseline});
  table.rows.push_back({.cells = {text_cell(kHostile), number_cell(61.25, metrics::Interval{55.0, 66.5})}});
  table.rows.push_back({.cells = {text_cell("other"), number_cell(64.0)}});
  table.rows.push_back({.cells = {text_cell("broken"), failed_cell("out of memory")}});
  return table;
}

TEST(TableHtml, EscapesTextFromOutside) {
  const std::string html = table_html(sample_table());
  EXPECT_EQ(html.find("<script>"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;"), std::string::npos);
  EXPECT_NE(html.find("out of memory"), std::string::npos);
}

TEST(TableLatex, EscapesCommandsAndUsesBooktabs) {
  const std::string tex = table_latex(sample_table());
  EXPECT_NE(tex.find("\\toprule"), std::string::npos);
  EXPECT_EQ(tex.find("$math$"), std::string::npos);
  EXPECT_EQ(tex.find("\\cmd"), std::string::npos);
  EXPECT_NE(tex.find("pipe\\_under"), std::string::npos);
}

TEST(TableMarkdown, KeepsItsColumnsWhateverTheText) {
  const std::string text = table_markdown(sample_table());
  EXPECT_EQ(text.find("<script>"), std::string::npos);
  EXPECT_NE(text.find("\\|"), std::string::npos);  // the pipe inside the text
}

TEST(TableCsv, QuotesFieldsAndKeepsFullPrecision) {
  Table table = sample_table();
  table.rows[1].cells[1].value = 61.123456789012345;
  const std::string csv = table_csv(table);
  EXPECT_NE(csv.find("61.123456789012344"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\"\"quotes\"\""), std::string::npos);
  EXPECT_NE(csv.find("\r\n"), std::string::npos);
}

TEST(TableCsv, DefusesFormulas) {
  Table table = sample_table();
  table.rows[2].cells[0] = text_cell("=HYPERLINK(1)");
  EXPECT_NE(table_csv(table).find("'=HYPERLINK"), std::string::npos);
}

TEST(MarkBest, LeavesTheBaselineOutAndTakesTheLargest) {
  Table table = sample_table();
  table.rows[1].cells[1].interval = metrics::Interval{55.0, 63.5};
  mark_best(table);
  EXPECT_FALSE(table.rows[0].cells[1].best);
  EXPECT_FALSE(table.rows[1].cells[1].best);
  EXPECT_TRUE(table.rows[2].cells[1].best);
}

TEST(MarkBest, HasNoWinnerInsideNoise) {
  Table table = sample_table();  // 64 lies inside the interval of 61.25
  mark_best(table);
  for (const TableRow& row : table.rows) EXPECT_FALSE(row.cells[1].best);
  table.rows.push_back({.cells = {text_cell("far below"), number_cell(20)}});
  mark_best(table);
  EXPECT_TRUE(table.rows[1].cells[1].best);
  EXPECT_TRUE(table.rows[2].cells[1].best);
  EXPECT_FALSE(table.rows[4].cells[1].best);
}

TEST(MarkBest, ComparesPeersAlone) {
  Table table = sample_table();
  table.rows[1].cells[1].interval.reset();
  table.rows[2].peers = 1;
  mark_best(table);
  EXPECT_FALSE(table.rows[2].cells[1].best) << "it is alone among its peers";
}

TEST(CheckTable, RefusesRowsOfAnotherWidth) {
  Table table = sample_table();
  table.rows[0].cells.pop_back();
  EXPECT_THROW((void)table_html(table), InternalError);
}

}  // namespace
}  // namespace kvarena::reports
