#include "reports/figures.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "reports/chart.h"

namespace kvarena::reports {
namespace {

namespace fs = std::filesystem;

/// A word of a shell's command line.
std::string quoted(const fs::path& path) {
  std::string text = "'";
  for (const char c : path.string()) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// A picture that needs no style sheet: converters know no variables.
std::string plain_svg(const Chart& chart) {
  std::string svg = render_svg(nlohmann::json::parse(chart.spec), {.width = 640, .title = false});
  constexpr std::string_view kPaper = "var(--paper,#fff)";
  for (size_t at = svg.find(kPaper); at != std::string::npos; at = svg.find(kPaper, at))
    svg.replace(at, kPaper.size(), "#fff");
  return svg;
}

void convert(const fs::path& from, const fs::path& to, const char* options) {
  const std::string command =
      fmt::format("rsvg-convert --background-color=white {} --output {} {}", options, quoted(to), quoted(from));
  if (std::system(command.c_str()) == 0) return;
  fail({.place = to.string(), .found = "rsvg-convert, which failed", .expected = "a picture of " + from.string()});
}

}  // namespace

Figures write_figures(const Document& document, const fs::path& folder) {
  Figures figures;
  fs::create_directories(folder);
  const bool converts = std::system("command -v rsvg-convert >/dev/null 2>&1") == 0;
  if (!converts)
    figures.missing = "no PNG and PDF: rsvg-convert is not installed (Debian: librsvg2-bin, conda-forge: librsvg)";
  for (const Section& section : document.sections) {
    for (const Chart& chart : section.charts) {
      const fs::path svg = folder / (chart.id + ".svg"), png = folder / (chart.id + ".png"),
                     pdf = folder / (chart.id + ".pdf");
      write_file(svg, plain_svg(chart));
      figures.written.push_back(svg);
      if (!converts) continue;
      convert(svg, png, "--format=png --zoom=2");
      convert(svg, pdf, "--format=pdf");
      figures.written.insert(figures.written.end(), {png, pdf});
    }
  }
  return figures;
}

}  // namespace kvarena::reports
