#include "reports/document.h"

#include <gtest/gtest.h>

#include "harness/core/error.h"

namespace kvarena::reports {
namespace {

Document document() {
  Table table{
      .id = "quality", .title = "Quality", .columns = {{.title = "Method", .numeric = false}, {.title = "Score"}}};
  table.rows.push_back({.cells = {text_cell("full & <fast>"), number_cell(1.5)}});
  return {.title = "An <experiment>",
          .introduction = {"What is compared & how."},
          .sections = {{.id = "quality", .title = "Quality", .tables = {table}}},
          .provenance = {{"host", "a<b"}}};
}

TEST(Html, IsOneFileThatLoadsNothing) {
  const std::string html = render(document(), Format::html);
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  for (const char* loader : {"src=\"http", "href=\"http", "@import", "url(http", "<link rel=\"stylesheet\""}) {
    EXPECT_EQ(html.find(loader), std::string::npos) << loader;
  }
  EXPECT_EQ(html.find("<experiment>"), std::string::npos);
  EXPECT_EQ(html.find("a<b"), std::string::npos);
}

TEST(Markdown, HoldsTitleTableAndProvenance) {
  const std::string text = render(document(), Format::markdown);
  EXPECT_TRUE(text.starts_with("# An "));
  EXPECT_NE(text.find("| Method"), std::string::npos) << text;
  EXPECT_NE(text.find("host"), std::string::npos);
}

TEST(Csv, HasOneTidyRecordACell) {
  const std::string text = render(document(), Format::csv);
  EXPECT_TRUE(text.starts_with(kTidyCsvHead));
  EXPECT_NE(text.find("1.5"), std::string::npos);
}

TEST(ParseFormat, KnowsEndingsAndNames) {
  EXPECT_EQ(parse_format("report.html"), Format::html);
  EXPECT_EQ(parse_format("tex"), Format::latex);
  EXPECT_EQ(parse_format("a/b.md"), Format::markdown);
  EXPECT_EQ(parse_format("x.csv"), Format::csv);
  EXPECT_THROW((void)parse_format("x.docx"), UserError);
}

}  // namespace
}  // namespace kvarena::reports
