// LaTeX that is compiled: pdflatex and lualatex, in one column and in two.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>

#include "harness/core/files.h"
#include "reports/document.h"

namespace kvarena::reports {
namespace {

namespace fs = std::filesystem;

/// A document with what our tables hold: verdicts, intervals, marks, notes, groups, many columns, long and foreign
/// texts.
Document document() {
  Table wide{.id = "quality",
             .title = "Quality",
             .caption = "Means: ▲ better, ▼ worse, ≈ no difference, ≠ differs; 5% of 12 × 3 → “all”, ∞ and µs.",
             .columns = {{.title = "Method", .numeric = false}}};
  for (int at = 0; at < 14; ++at) {
    wide.columns.push_back({.title = fmt::format("a_workload of {} words", at),
                            .unit = "exact_call_accuracy, %",
                            .group = at < 3 ? "first & few" : "",
                            .better = Better::higher});
  }
  for (const char* name : {"Full KV", "VeriCache over SnapKV 0.25 with \\badges, {braces} and 语言 Ðþ «x»", "KIVI"}) {
    TableRow row{.cells = {text_cell(name)}, .badge = Badge{.label = "4e3a3c2"}};
    for (int at = 0; at < 14; ++at) {
      row.cells.push_back(number_cell(10.0 * at, metrics::Interval{9.0 * at, 11.0 * at}));
      row.cells.back().difference =
          Difference{.value = -5, .interval = {-9, -1}, .verdict = static_cast<Verdict>(at % 5)};
      row.cells.back().simulated = at == 5;
      row.cells.back().best = at == 6;
    }
    row.cells[2].notes.push_back(footnote(wide, "On fewer samples than the others: 100% & more_"));
    wide.rows.push_back(std::move(row));
  }
  wide.rows.back().cells[3] = failed_cell("out of memory");
  Table narrow{.id = "outcomes",
               .title = "Cells without numbers",
               .columns = {{.title = "Method", .numeric = false}, {.title = "Outcome", .numeric = false}}};
  narrow.rows.push_back({.cells = {text_cell("broken"), text_cell("a reason that is long enough for several lines of "
                                                                  "a column, with $math$ and #hash")}});
  return {.title = "An experiment", .sections = {{.id = "quality", .title = "Quality", .tables = {wide, narrow}}}};
}

TEST(Latex, HasNoHashColumnsAndNoSignsThatFontsLack) {
  const std::string tex = render(document(), Format::latex);
  EXPECT_EQ(tex.find("4e3a3c2"), std::string::npos);
  EXPECT_NE(tex.find("\\caption{\\textbf{Quality, part 1 of"), std::string::npos) << tex;
  for (const char* sign : {"▲", "▼", "≈", "≠", "语", "Ð", "∞"}) EXPECT_EQ(tex.find(sign), std::string::npos) << sign;
}

TEST(Latex, ATableAsWideAsAColumnStaysInIt) {
  Table small{.id = "t", .title = "T", .columns = {{.title = "Method", .numeric = false}, {.title = "Score"}}};
  small.rows.push_back({.cells = {text_cell("full"), number_cell(70, metrics::Interval{60, 80})}});
  const std::string tex = table_latex(small);
  EXPECT_NE(tex.find("\\begin{table}"), std::string::npos);
  EXPECT_NE(tex.find(" & {\\scriptsize (60.0 -- 80.0)}"), std::string::npos) << "the interval is a line of its own";
}

TEST(Latex, PartsOfAWideTableAreAboutAsWideAndBringTheirOwnNotes) {
  Table wide{.id = "t", .title = "T", .columns = {{.title = "Method", .numeric = false}}};
  TableRow row{.cells = {text_cell("full")}};
  for (int at = 0; at < 8; ++at) {  // seven of these are as wide as a page
    wide.columns.push_back({.title = fmt::format("task {}", at), .unit = "exact_accuracy, %"});
    row.cells.push_back(number_cell(70, metrics::Interval{60, 80}));
  }
  row.cells[1].notes.push_back(footnote(wide, "the first alone"));
  wide.rows.push_back(row);
  const std::string tex = table_latex(wide);
  EXPECT_NE(tex.find("part 1 of 2"), std::string::npos) << tex;
  EXPECT_NE(tex.find("{@{}lrrrr@{}}"), std::string::npos) << "four and four, not seven and one\n" << tex;
  EXPECT_EQ(tex.find("the first alone"), tex.rfind("the first alone")) << tex;
  EXPECT_NE(tex.find("task 0\\\\(exact\\_accuracy,"), std::string::npos) << "a unit begins a line\n" << tex;
}

class LatexCompiles : public ::testing::TestWithParam<std::string> {};

TEST_P(LatexCompiles, AndNothingIsWiderThanThePage) {
  const std::string& compiler = GetParam();
  if (std::system(("command -v " + compiler + " >/dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << compiler << " is not installed (Debian: texlive-latex-recommended, texlive-luatex)";
  const fs::path folder = fs::path(::testing::TempDir()) / ("kvarena-" + compiler);
  for (const std::string options : {"", "[twocolumn]"}) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    write_file(folder / "tables.tex", render(document(), Format::latex));
    write_file(folder / "paper.tex", fmt::format("\\documentclass{}{{article}}\n\\usepackage{{booktabs,graphicx}}\n"
                                                 "\\begin{{document}}\nText.\n\\input{{tables}}\n\\end{{document}}\n",
                                                 options));
    const std::string command = fmt::format("cd {} && {} -interaction=nonstopmode -halt-on-error paper.tex >log 2>&1",
                                            folder.string(), compiler);
    const bool compiled = std::system(command.c_str()) == 0;
    const std::string log = read_file(folder / "log");
    EXPECT_TRUE(compiled) << log;
    EXPECT_TRUE(fs::exists(folder / "paper.pdf"));
    EXPECT_EQ(log.find("Overfull \\hbox"), std::string::npos) << options << log;
  }
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(All, LatexCompiles, ::testing::Values("pdflatex", "lualatex"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kvarena::reports
