#include "reports/figures.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/core/files.h"
#include "reports/chart_specs.h"

namespace kvarena::reports {
namespace {

namespace fs = std::filesystem;

Document document() {
  return {.title = "E",
          .sections = {{.id = "s",
                        .title = "S",
                        .charts = {scatter_chart("trade-off", "S", {.title = "bytes"}, {.title = "score"},
                                                 {{.series = "a", .label = "a", .x = 1, .y = 2}})}}}};
}

TEST(Figures, AreFilesThatNeedNoStyle) {
  const fs::path folder = fs::path(::testing::TempDir()) / "kvarena figures' folder";
  fs::remove_all(folder);
  const Figures figures = write_figures(document(), folder);
  const std::string svg = read_file(folder / "trade-off.svg");
  EXPECT_TRUE(svg.starts_with("<svg"));
  EXPECT_EQ(svg.find("var("), std::string::npos);
  if (std::system("command -v rsvg-convert >/dev/null 2>&1") == 0) {
    EXPECT_EQ(figures.missing, "");
    EXPECT_EQ(figures.written.size(), 3U);
    EXPECT_TRUE(read_file(folder / "trade-off.png").starts_with("\x89PNG"));
    EXPECT_TRUE(read_file(folder / "trade-off.pdf").starts_with("%PDF"));
  } else {
    EXPECT_EQ(figures.written.size(), 1U);
    EXPECT_NE(figures.missing.find("rsvg-convert is not installed"), std::string::npos);
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace kvarena::reports
