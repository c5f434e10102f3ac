#include "harness/cost_model/estimate.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kvarena::cost_model {
namespace {

const std::filesystem::path kConfigs = std::filesystem::path(KVARENA_SOURCE_DIR) / "configs";

Hardware hardware(const std::string& name) { return read_hardware(find_description(name, kConfigs / "hardware")); }
ModelShape shape(const std::string& name) { return read_shape(find_description(name, kConfigs / "shapes")); }

TEST(Estimate, SpeedUpsAreOverFullKvAtTheSameContext) {
  const std::vector<EstimateRow> rows =
      estimate_rows(hardware("h100-80gb"), shape("llama-3.1-8b"),
                    {{CacheScheme{}, {.context = 8192, .output = 256}},
                     {CacheScheme{.label = "a quarter", .keep = 0.25}, {.context = 8192, .output = 256}},
                     {CacheScheme{.label = "a quarter", .keep = 0.25}, {.context = 32768, .output = 256}}});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_DOUBLE_EQ(rows[0].speedup, 1);
  // 80 GiB x 0.9 less 16.06 GB hold 55 caches of 8448 x 131,072 bytes, and four times as many quarters.
  EXPECT_EQ(rows[0].run->batch, 55);
  EXPECT_EQ(rows[1].run->batch, 221);
  EXPECT_NEAR(rows[1].speedup, 4, 0.05);
  EXPECT_NEAR(rows[2].speedup, 4, 0.05);
}

TEST(Estimate, WhatDoesNotFitIsARowWithoutNumbers) {
  const std::vector<EstimateRow> rows = estimate_rows(hardware("a6000-48gb"), shape("llama-3.3-70b"),
                                                      {{CacheScheme{}, {.context = 8192, .output = 256}}});
  EXPECT_FALSE(rows[0].run);
  const nlohmann::json json = estimate_json(rows[0]);
  EXPECT_FALSE(json.at("fits").get<bool>());
  EXPECT_FALSE(json.contains("batch"));
}

TEST(Estimate, JsonSaysThatItIsModelledAndWhereItsInputsStand) {
  const nlohmann::json inputs = inputs_json(hardware("gh200-96gb"), shape("qwen3-32b"));
  EXPECT_TRUE(inputs.at("modelled").get<bool>());
  EXPECT_FALSE(inputs.at("hardware").at("memory_gb_per_s").at("source").get<std::string>().empty());
  EXPECT_EQ(inputs.at("hardware").at("links").at("host").at("gb_per_s"), 450.0);
  EXPECT_TRUE(inputs.at("efficiency").at("source").get<std::string>().starts_with("assumed"));
  EXPECT_EQ(inputs.at("model").at("cache_bytes_per_token"), 262144);
  const nlohmann::json row = estimate_json(estimate_rows(hardware("gh200-96gb"), shape("qwen3-32b"),
                                                         {{CacheScheme{}, {.context = 8192, .output = 256}}})[0]);
  EXPECT_EQ(row.at("bound"), "weights");
  EXPECT_GT(row.at("step").at("flops").get<double>(), 6e10);
}

TEST(Plan, IsThePlannersWithTheMachinesReachedRates) {
  const AcceptanceFile acceptance =
      parse_acceptance(R"({"curves": [{"keep": 0.25, "independent": 0.98, "max_draft_length": 40}]})", "a.json");
  const Hardware machine = hardware("rtx-pro-6000-96gb");
  const ModelShape model = shape("mistral-small-24b");
  const std::vector<PlanRow> rows =
      plan_rows(machine, model, acceptance, {{.context = 32768, .output = 256}}, LinkModel::strict);
  ASSERT_TRUE(rows[0].best && rows[0].full);
  const DecodingMachine reached{
      .memory_bytes = 0.9 * 96 * 1024.0 * 1024 * 1024, .memory_bandwidth = 0.7 * 1792e9, .link_bandwidth = 0.86 * 64e9};
  const DecodingLoad load{.weight_bytes = 2 * 23'572'403'200.0, .cache_bytes = (32768.0 + 128) * 163840};
  const DecodingEstimate again = estimate(reached, load, rows[0].best->plan, LinkModel::strict);
  EXPECT_TRUE(again.fits && again.link_serves);
  EXPECT_NEAR(again.tokens_per_second, rows[0].best->estimate.tokens_per_second, 1e-6);
  EXPECT_GT(rows[0].best->speedup, 1.5);
  EXPECT_EQ(plan_json(rows[0]).at("keep"), 0.25);
  const std::vector<ScheduleRow>& schedules = rows[0].schedules;
  ASSERT_EQ(schedules.size(), 3U);
  for (const ScheduleRow& row : schedules) {
    ASSERT_TRUE(row.run) << row.schedule;
    EXPECT_EQ(row.run->tokens, 256 * row.requests) << row.schedule;
    EXPECT_EQ(row.fits, row.run->peak_bytes <= reached.memory_bytes) << row.schedule;
  }
  EXPECT_TRUE(schedules[0].fits);
  EXPECT_GT(schedules[0].run->tokens_per_second(), schedules[1].run->tokens_per_second());

  const std::vector<PlanRow> none =
      plan_rows(machine, shape("llama-3.3-70b"), acceptance, {{.context = 32768, .output = 0}}, LinkModel::strict);
  EXPECT_FALSE(none[0].best);
  EXPECT_FALSE(plan_json(none[0]).at("fits").get<bool>());
}

}  // namespace
}  // namespace kvarena::cost_model
