#include "reports/chart.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <tuple>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/home.h"
#include "reports/chart_specs.h"
#include "reports/text_width.h"

namespace kvarena::reports {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

Chart two_lines() {
  return line_chart(
      "kl", "KL", {.title = "step"}, {.title = "nats", .zero = true},
      {{.label = "a <b>", .points = {{0, 0.1, metrics::Interval{0.0, 0.2}}, {1, 0.3, metrics::Interval{0.2, 0.4}}}},
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
  EXPECT_TRUE(points[0].on_segment);
  EXPECT_TRUE(points[1].on_segment);
  EXPECT_FALSE(points[2].on_segment);
  const std::string svg =
      render_svg(json::parse(scatter_chart("s", "S", {.title = "bytes"}, {.title = "score"}, points).spec));
  EXPECT_NE(svg.find("beaten"), std::string::npos);
}

/// Labels of a chart as they were placed: text and box.
std::vector<std::pair<std::string, std::array<double, 4>>> labels_of(const std::string& svg, double size) {
  std::vector<std::pair<std::string, std::array<double, 4>>> labels;
  const std::regex text(
      "<text x=\"([0-9.-]+)\" y=\"([0-9.-]+)\" font-size=\"11\"[^>]*pointer-events[^>]*>([^<]*)</text>");
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), text); it != std::sregex_iterator(); ++it) {
    const double left = std::stod((*it)[1]), middle = std::stod((*it)[2]) - 0.35 * size;
    const std::string label = (*it)[3];
    labels.emplace_back(label, std::array{left, middle - size / 2, left + text_width(label, size), middle + size / 2});
  }
  return labels;
}

/// Draws the chart and expects every label in it, apart from the others and from the axis.
void expect_labels_apart(const std::vector<ScatterPoint>& points, double width) {
  const std::string svg = render_svg(
      json::parse(scatter_chart("s", "S", {.title = "bytes"}, {.title = "score"}, points).spec), {.width = width});
  const auto labels = labels_of(svg, 11);
  EXPECT_EQ(labels.size(), points.size()) << "none is left out";
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto& [name, box] = labels[i];
    EXPECT_GT(box[0], 30) << name << " stands on the axis";
    for (size_t j = 0; j < i; ++j) {
      const auto& other = labels[j].second;
      const bool apart = box[0] >= other[2] || other[0] >= box[2] || box[1] >= other[3] || other[1] >= box[3];
      EXPECT_TRUE(apart) << name << " and " << labels[j].first;
    }
  }
}

TEST(ScatterChart, LabelsMeetNeitherEachOtherNorPointsNorTheAxis) {
  std::vector<ScatterPoint> points;
  for (int i = 0; i < 10; ++i) {  // crowded: two columns of points
    points.push_back({.series = fmt::format("s{}", i),
                      .label = fmt::format("A method with a name, setting {}", i),
                      .x = i % 2 == 0 ? 25.0 + i : 50.0 + 0.3 * i,
                      .y = 40.0 + 2 * i,
                      .y_interval = metrics::Interval{30.0 + i, 50.0 + 3 * i}});
  }
  mark_pareto_front(points);
  expect_labels_apart(points, 760);
}

TEST(ScatterChart, ALabelThatFindsNoPlaceIsPlacedBeforeTheOthers) {
  std::vector<ScatterPoint> points;  // a corner: the last label has no place where the others were put first
  for (const auto& [label, x, y] :
       {std::tuple("Full KV", 16.1, 83.3), std::tuple("StreamingLLM, half", 19.6, 55.6),
        std::tuple("SnapKV, keep 0.5", 22.2, 66.7), std::tuple("SnapKV, keep 0.25", 17.8, 58.3),
        std::tuple("H2O, half", 17.7, 66.7), std::tuple("KIVI, 4 bits", 19.8, 83.3),
        std::tuple("KIVI, 2 bits", 23.8, 58.3), std::tuple("Quest, a quarter a step", 17.1, 58.3),
        std::tuple("VeriCache over SnapKV 0.25", 59.1, 83.3)}) {
    points.push_back({.series = label, .label = label, .x = x, .y = y});
  }
  expect_labels_apart(points, 640);
}

TEST(LineChart, CountsHaveTicksAtWholeNumbers) {
  const auto ticks = [](bool whole) {
    return render_svg(json::parse(line_chart("l", "L", {.title = "step", .whole = whole}, {.title = "y"},
                                             {{.label = "a", .points = {{1, 10, std::nullopt}, {4, 30, std::nullopt}}}})
                                      .spec));
  };
  EXPECT_NE(ticks(false).find(">1."), std::string::npos);
  EXPECT_EQ(ticks(true).find(">1."), std::string::npos);
  EXPECT_NE(ticks(true).find(">3<"), std::string::npos);
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

/// One chart of every kind, with and without what is optional.
std::vector<Chart> every_kind_of_chart() {
  std::vector<ScatterPoint> points = {
      {.series = "a", .label = "small", .x = 10, .y = 50, .y_interval = metrics::Interval{40, 60}},
      {.series = "b", .label = "large", .x = 100, .y = 80, .baseline = true}};
  mark_pareto_front(points);
  return {two_lines(),
          line_chart("log", "Log", {.title = "x", .log = true}, {.title = "y", .log = true, .whole = true},
                     {{.label = "a", .points = {{1, 0.1, std::nullopt}, {10, 0.3, std::nullopt}}, .baseline = true}}),
          scatter_chart("scatter", "Scatter", {.title = "bytes"}, {.title = "score"}, points),
          bar_chart("bars", "Bars", {.title = "ms"},
                    {{.category = "a", .value = 1, .interval = metrics::Interval{0.5, 2}}}),
          bar_chart("stacked", "Stacked", {.title = "ms"},
                    {{.category = "a", .part = "prefill", .value = 1}, {.category = "a", .part = "decode", .value = 2}},
                    BarLayout::stacked),
          bar_chart("grouped", "Grouped", {.title = "ms", .log = true},
                    {{.category = "a", .part = "p", .value = 1, .interval = metrics::Interval{0.5, 2}},
                     {.category = "a", .part = "q", .value = 2, .interval = metrics::Interval{1.5, 3}}}),
          heat_map("heat", "Heat", "length", "depth", "score", {{"1k", "0", 0.1}, {"2k", "50", 0.9}})};
}

class VegaLiteSchema : public ::testing::Test {
 protected:
  void SetUp() override {
    schema_ = kvarena_home() / "vega-lite/v5.json";
    if (!fs::exists(schema_)) GTEST_SKIP() << "no schema in " << schema_ << "; scripts/setup fetches it";
    if (std::system("python3 -c 'import jsonschema' 2>/dev/null") != 0) {
      GTEST_SKIP() << "Python's jsonschema is not installed";
    }
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Output of the check of these specifications; "" when all fit.
  std::string complaints(const std::vector<Chart>& charts) {
    std::string command = "python3 " + (fs::path(KVARENA_SOURCE_DIR) / "tests/reports/check_vega_lite.py").string() +
                          " " + schema_.string();
    for (const Chart& chart : charts) {
      write_file(folder_ / (chart.id + ".json"), chart.spec);
      command += fmt::format(" {}", (folder_ / (chart.id + ".json")).string());
    }
    const bool fits = std::system((command + " >" + (folder_ / "answer").string() + " 2>&1").c_str()) == 0;
    const std::string answer = read_file(folder_ / "answer");
    EXPECT_EQ(fits, answer.empty()) << answer;
    return answer;
  }

  fs::path schema_;
  fs::path folder_ = fs::path(::testing::TempDir()) / "kvarena-vega-lite";
};

TEST_F(VegaLiteSchema, AcceptsEveryKindOfChart) { EXPECT_EQ(complaints(every_kind_of_chart()), ""); }

TEST_F(VegaLiteSchema, ComplainsAboutAPlantedMistake) {
  Chart broken = two_lines();
  json spec = json::parse(broken.spec);
  spec["layer"][0]["encoding"]["x"]["type"] = "quantitive";
  broken.spec = spec.dump();
  EXPECT_NE(complaints({broken}), "");
}

}  // namespace
}  // namespace kvarena::reports
