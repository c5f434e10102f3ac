#include "reports/chart.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "reports/chart_specs.h"

namespace kvarena::reports {
namespace {

using nlohmann::json;

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

Chart two_lines() {
  return line_chart("kl", "KL", {.title = "step"}, {.title = "nats", .zero = true},
                    {{.label = "a <b>", .points = {{0, 0.1, Interval{0.0, 0.2}}, {1, 0.3, Interval{0.2, 0.4}}}},
                     {.label = "c", .points = {{0, 0.2, std::nullopt}, {1, 0.1, std::nullopt}}}});
}

TEST(LineChart, IsAVegaLiteSpecificationWithItsData) {
  const json spec = json::parse(two_lines().spec);
  EXPECT_NE(spec["$schema"].get<std::string>().find("vega-lite/v5"), std::string::npos);
  const std::string csv = chart_csv(spec);
  EXPECT_NE(csv.find("0.3"), std::string::npos);
  EXPECT_GE(count(csv, "\r\n"), 5U);  // a head and four points
}

TEST(LineChart, RendersEveryPointInsideThePicture) {
  const std::string svg = render_svg(json::parse(two_lines().spec));
  EXPECT_TRUE(svg.starts_with("<svg"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  EXPECT_NE(svg.find("step"), std::string::npos);
}

TEST(RenderSvg, RefusesWhatItDoesNotUnderstand) {
  json spec = json::parse(two_lines().spec);
  if (spec.contains("layer")) spec["layer"][0]["mark"] = "geoshape";
  spec["mark"] = "geoshape";
  try {
    (void)render_svg(spec);
    FAIL() << "expected a UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("mark"), std::string::npos) << error.what();
  }
}

TEST(ScatterChart, JoinsTheParetoFront) {
  std::vector<ScatterPoint> points = {{.series = "a", .label = "small", .x = 10, .y = 50},
                                      {.series = "a", .label = "large", .x = 100, .y = 80},
                                      {.series = "b", .label = "beaten", .x = 60, .y = 40}};
  mark_pareto_front(points);
  EXPECT_TRUE(points[0].on_front);
  EXPECT_TRUE(points[1].on_front);
  EXPECT_FALSE(points[2].on_front);
  const std::string svg =
      render_svg(json::parse(scatter_chart("s", "S", {.title = "bytes"}, {.title = "score"}, points).spec));
  EXPECT_NE(svg.find("beaten"), std::string::npos);
}

TEST(HeatMap, HasACellForEveryValue) {
  std::vector<HeatCell> cells;
  for (const char* x : {"1k", "2k", "4k"}) {
    for (const char* y : {"0", "50"}) cells.push_back({x, y, 0.5});
  }
  const std::string svg = render_svg(json::parse(heat_map("h", "H", "length", "depth", "score", cells).spec));
  EXPECT_GE(count(svg, "<rect"), 6U);
}

TEST(ChartHtml, OffersTheChartWithoutANetwork) {
  const std::string html = chart_html(two_lines());
  EXPECT_NE(html.find("data:image/svg+xml;base64,"), std::string::npos);
  EXPECT_EQ(html.find("src=\"http"), std::string::npos);
  EXPECT_EQ(html.find("href=\"http"), std::string::npos);
}

}  // namespace
}  // namespace kvarena::reports
