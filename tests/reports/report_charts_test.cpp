// Charts of a report.

#include "reports/report_charts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reports/sections.h"
#include "reports/settings_charts.h"
#include "tests/reports/stored_experiment.h"

namespace kvarena::reports {
namespace {

TEST_F(ReportTest, DrawsKlByStepAndTheTradeOff) {
  const auto data = experiment("a.db", {{"full", scores(6, 0.9)}, {"lossy", scores(6, 0.6)}});
  const std::string html = render(experiment_report(data), Format::html);
  EXPECT_NE(html.find("id=\"kl-growth\""), std::string::npos);
  EXPECT_NE(html.find("id=\"kl-sum\""), std::string::npos);
  EXPECT_NE(html.find("id=\"trade-off\""), std::string::npos);
  EXPECT_EQ(html.find("<i>answer</i>"), std::string::npos);
}

TEST_F(ReportTest, SumsKlUpToEachStepOfFewSamplesToo) {
  for (const int samples : {2, 6}) {
    const auto data = experiment(fmt::format("{}.db", samples), {{"full", scores(samples, 0.9)}});
    const std::vector<Chart> charts = kl_charts(data);
    ASSERT_EQ(charts.size(), 2U) << samples;
    const nlohmann::json points = nlohmann::json::parse(charts[1].spec).at("data").at("values");
    ASSERT_EQ(points.size(), 3U);
    EXPECT_NEAR(points.back().at("y").get<double>(), 0.3, 1e-6) << "0 + 0.1 + 0.2";
  }
}

TEST_F(ReportTest, DrawsBytesByTierWhereATierBehindTheDeviceIsUsed) {
  constexpr float kMiB = 1024 * 1024;
  const results::Series device{.name = "device_bytes", .values = {kMiB, 2 * kMiB, 3 * kMiB}, .unit = "bytes"};
  const results::Series host{.name = "host_bytes", .values = {5 * kMiB, 5 * kMiB, 6 * kMiB}, .unit = "bytes"};
  MethodScores full{"full", scores(6, 0.9)}, tiered{"tiered", scores(6, 0.6)};
  full.series = {device};
  EXPECT_TRUE(tier_charts(experiment("device.db", {full})).empty());
  tiered.series = {device, host};
  const std::vector<Chart> charts = tier_charts(experiment("tiers.db", {full, tiered}));
  ASSERT_EQ(charts.size(), 1U);
  const std::string spec = charts[0].spec;
  for (const char* line : {"full, device", "tiered, device", "tiered, host"}) {
    EXPECT_NE(spec.find(line), std::string::npos) << line;
  }
  EXPECT_EQ(spec.find("full, host"), std::string::npos);
  EXPECT_NE(spec.find(R"("x":2.0,"y":6.0)"), std::string::npos) << spec;
}

TEST_F(ReportTest, DrawsAcceptanceByDraftLength) {
  std::vector<MethodScores> methods = {{"full", scores(4, 0.9)}};
  for (const std::string drafter : {"a", "b"}) {
    for (const int length : {10, 5}) {
      methods.push_back({fmt::format("{}, x = {}", drafter, length), scores(4, 0.9)});
      methods.back().name = "verifier";
      methods.back().settings = fmt::format(R"({{"draft_length": {}, "drafter": "{}"}})", length, drafter);
      methods.back().accepted = drafter == "a" ? 0.5 * length : 1.0;
    }
  }
  methods.push_back({"alone", scores(4, 0.9)});  // one length makes no curve
  methods.back().settings = R"({"draft_length": 5})";
  methods.back().accepted = 3;
  const std::vector<Chart> charts = drafting_charts(experiment("a.db", methods));
  ASSERT_EQ(charts.size(), 1U);
  const nlohmann::json spec = nlohmann::json::parse(charts[0].spec);
  const std::string text = spec.dump();
  EXPECT_EQ(text.find("alone"), std::string::npos);
  EXPECT_EQ(text.find("x = "), std::string::npos) << "a line is called what its points have in common";
  // a: 2.5 and 5 accepted, and 0, 0.1, 0.2, 0.3 more in the four samples
  for (const char* point :
       {R"("series":"a","x":5.0,"y":2.65)", R"("series":"a","x":10.0,"y":5.15)", R"("series":"b","x":10.0,"y":1.15)"}) {
    EXPECT_NE(text.find(point), std::string::npos) << point << "\n" << text;
  }
  EXPECT_NE(render(experiment_report(experiment("b.db", methods)), Format::html).find("id=\"acceptance\""),
            std::string::npos);
}

TEST_F(ReportTest, DrawsAGridOfTwoSettings) {
  std::vector<MethodScores> methods = {{"full", scores(2, 0.9)}};
  for (const double smooth : {0.4, 0.1}) {
    for (const double cover : {0.5, 0.9}) {
      methods.push_back({fmt::format("s {} c {}", smooth, cover), {smooth, smooth + cover / 10}});
      methods.back().name = "spans";
      methods.back().settings = fmt::format(R"({{"cover": {}, "share": 0.2, "smooth": {}}})", cover, smooth);
    }
  }
  const std::vector<Chart> charts = settings_grids(experiment("grid.db", methods));
  ASSERT_EQ(charts.size(), 1U);
  EXPECT_EQ(charts[0].id, "grid-spans-facts");
  // mean of 0.1 and 0.1 + 0.09, as a percentage
  EXPECT_NE(charts[0].spec.find("14.5"), std::string::npos) << charts[0].spec;
  methods.pop_back();
  EXPECT_TRUE(settings_grids(experiment("hole.db", methods)).empty()) << "a grid with a hole is none";
  methods.back().settings = R"({"cover": 0.9, "share": 0.3, "smooth": 0.1})";
  EXPECT_TRUE(settings_grids(experiment("three.db", methods)).empty()) << "three settings are no grid";
}

}  // namespace
}  // namespace kvarena::reports
