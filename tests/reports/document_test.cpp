#include "reports/document.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "reports/chart_specs.h"

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

// A style that a chart asks for and the page lacks falls back to white, which hides labels on dark paper.
TEST(Html, DefinesEveryStyleVariableThatChartsUse) {
  Document page = document();
  page.sections[0].charts.push_back(
      scatter_chart("s", "S", {.title = "x"}, {.title = "y"}, {{.series = "a", .label = "a", .x = 1, .y = 2}}));
  const std::string html = render(page, Format::html);
  for (size_t at = html.find("var(--"); at != std::string::npos; at = html.find("var(--", at + 1)) {
    const std::string name = html.substr(at + 4, html.find_first_of(",)", at) - at - 4);
    EXPECT_NE(html.find(name + ":"), std::string::npos) << name;
  }
}

TEST(Html, OpensInChromiumWithoutConsoleMessages) {
  if (std::system("command -v chromium >/dev/null 2>&1") != 0) GTEST_SKIP() << "chromium is not installed";
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "kvarena-report-page";
  std::filesystem::create_directories(folder);
  const auto console_of = [&](const std::string& html) {
    write_file(folder / "page.html", html);
    const std::string command =
        "timeout 60 chromium --headless --no-sandbox --disable-gpu --enable-logging=stderr "
        "--user-data-dir=" +
        (folder / "profile").string() + " --dump-dom file://" + (folder / "page.html").string() + " >" +
        (folder / "dom").string() + " 2>" + (folder / "log").string();
    EXPECT_EQ(std::system(command.c_str()), 0);
    return read_file(folder / "log");
  };
  EXPECT_EQ(console_of(render(document(), Format::html)).find("CONSOLE"), std::string::npos)
      << read_file(folder / "log");
  EXPECT_NE(read_file(folder / "dom").find("full &amp; &lt;fast&gt;"), std::string::npos);
  // A page with an error is reported, so that silence means something.
  EXPECT_NE(console_of("<script>undefined_name()</script>").find("CONSOLE"), std::string::npos);
  std::filesystem::remove_all(folder);
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
