#include "reports/document.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <vector>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "reports/chart_specs.h"
#include "tests/support/temporary_folder.h"

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

bool is_installed(const std::string& program) {
  return std::system(fmt::format("command -v {} >/dev/null 2>&1", program).c_str()) == 0;
}

/// A page as headless Chromium opens it. What it says is in the folder's file "log".
class Browser {
 public:
  explicit Browser(const std::string& html) { write_file(path("page.html"), html); }

  /// Returns what Chromium writes to its standard output under these options.
  [[nodiscard]] std::string open(const std::string& options) const {
    const std::string command = fmt::format(
        "timeout 60 chromium --headless --no-sandbox --disable-gpu --enable-logging=stderr --user-data-dir={} {} "
        "file://{} >{} 2>{}",
        path("profile"), options, path("page.html"), path("out"), path("log"));
    EXPECT_EQ(std::system(command.c_str()), 0) << read_file(path("log"));
    return read_file(path("out"));
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  [[nodiscard]] std::string log() const { return read_file(path("log")); }

 private:
  testing::TemporaryFolder folder_;
};

TEST(Html, OpensInChromiumWithoutConsoleMessages) {
  if (!is_installed("chromium")) GTEST_SKIP() << "chromium is not installed";
  const Browser browser(render(document(), Format::html));
  EXPECT_NE(browser.open("--dump-dom").find("full &amp; &lt;fast&gt;"), std::string::npos);
  EXPECT_EQ(browser.log().find("CONSOLE"), std::string::npos) << browser.log();
  // A page with an error is reported, so that silence means something.
  const Browser wrong("<script>undefined_name()</script>");
  (void)wrong.open("--dump-dom");
  EXPECT_NE(wrong.log().find("CONSOLE"), std::string::npos);
}

/// Words of each page that Chromium prints, line by line.
std::vector<std::string> printed_pages(const Document& document) {
  const Browser browser(render(document, Format::html));
  (void)browser.open("--no-pdf-header-footer --print-to-pdf=" + browser.path("page.pdf"));
  const std::string command =
      fmt::format("pdftotext -layout {} {}", browser.path("page.pdf"), browser.path("page.txt"));
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::vector<std::string> pages;
  std::istringstream text(read_file(browser.path("page.txt")));
  for (std::string page; std::getline(text, page, '\f');) pages.push_back(page);
  return pages;
}

TEST(Html, PrintsWhatIsFoldedAndNoHeadApartFromItsRows) {
  if (!is_installed("chromium") || !is_installed("pdftotext"))
    GTEST_SKIP() << "chromium or pdftotext (Debian: poppler-utils) is not installed";
  Document page = document();
  Table& table = page.sections[0].tables[0];
  table.rows[0].badge = Badge{.label = "card", .details = {{"dtype", "folded away"}}};
  table.rows.insert(table.rows.end(), 3, {.cells = {text_cell("a row"), number_cell(2)}});
  page.sections[0].paragraphs = {"A paragraph."};
  page.sections.insert(page.sections.end(), 49, page.sections[0]);
  const std::vector<std::string> pages = printed_pages(page);
  ASSERT_GE(pages.size(), 10U);
  int cards = 0;
  for (const std::string& text : pages) {
    for (size_t at = text.find("folded away"); at != std::string::npos; at = text.find("folded away", at + 1)) ++cards;
    const size_t end = text.find_last_not_of(" \n");
    const size_t line = text.find_last_of('\n', end) + 1;
    EXPECT_TRUE(text.substr(line, end - line).find("a row") != std::string::npos || &text == &pages.back()) << text;
  }
  EXPECT_EQ(cards, 50);
  EXPECT_NE(pages.back().find("a<b"), std::string::npos) << "provenance";
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
