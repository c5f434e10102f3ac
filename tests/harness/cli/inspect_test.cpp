// kvarena inspect on a random model of three layers: what it says agrees with itself and with what methods promise.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/harness/cli/check.h"
#include "tests/harness/cli/tiny_model_folder.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;

constexpr int kPrompt = 120;

std::string prompt_ids() {
  std::string ids;
  for (int i = 0; i < kPrompt; ++i) ids += std::to_string(2 + i * i % 290) + ",";
  return ids;
}

Finished run_inspect(const std::string& method, const std::vector<std::string>& more = {}) {
  static const TinyModelFolder model;
  std::vector<std::string> words{"inspect", "--model", model.path(), "--ids", prompt_ids(), "--method", method};
  words.insert(words.end(), more.begin(), more.end());
  return run_kvarena(words);
}

json inspected(const std::string& method) {
  const Finished finished = run_inspect(method);
  EXPECT_EQ(finished.code, 0) << finished.err;
  return json::parse(finished.out, nullptr, false);
}

TEST(Inspect, ADroppedEntryIsHeldByNoSegmentAndPaidByNone) {
  const json result = inspected("snapkv:keep=0.25,window=8");
  ASSERT_EQ(result.at("layers").size(), 3U);
  int64_t bytes = 0;
  for (const json& layer : result.at("layers")) {
    bytes += layer.at("bytes").get<int64_t>();
    ASSERT_EQ(layer.at("positions").size(), 2U);  // kv heads
    for (const json& positions : layer.at("positions")) {
      const auto kept = positions.get<std::vector<int>>();
      EXPECT_EQ(kept.size(), 30U);
      EXPECT_TRUE(std::ranges::is_sorted(kept));
      for (int position = kPrompt - 8; position < kPrompt; ++position) {
        EXPECT_TRUE(std::ranges::binary_search(kept, position)) << position;
      }
    }
    EXPECT_EQ(layer.at("segments")[0].at("form"), "ragged");
    EXPECT_EQ(layer.at("segments")[0].at("entries"), json({30, 30}));
  }
  EXPECT_EQ(result.at("resident_bytes"), bytes);
  EXPECT_LT(bytes, result.at("full_bytes").get<int64_t>() / 3);
  EXPECT_EQ(result.at("state_bytes"), 0);
  EXPECT_EQ(result.at("activity").at("entries_dropped"), 3 * 2 * 90);
}

TEST(Inspect, FullKvKeepsAllOfItsAttentionAndACompressedCacheLess) {
  const json full = inspected("full");
  for (const json& step : full.at("steps")) {
    for (const json& mass : step.at("attention_mass_kept")) EXPECT_NEAR(mass.get<double>(), 1.0, 1e-4);
  }
  const json dropping = inspected("streaming_llm:keep=0.1");
  for (const json& step : dropping.at("steps")) {
    for (const json& mass : step.at("attention_mass_kept")) {
      EXPECT_GT(mass.get<double>(), 0.0);
      EXPECT_LT(mass.get<double>(), 0.999);
    }
  }
}

TEST(Inspect, RetrievalShowsItsSelectionAtEachStep) {
  const json result = inspected("quest:keep=0.4,dense_layers=1,min_pages=2");
  ASSERT_EQ(result.at("steps").size(), 4U);
  int step_number = 0;
  for (const json& step : result.at("steps")) {
    const int newest = kPrompt + step_number++;
    const json& selected = step.at("selected");
    ASSERT_EQ(selected.size(), 3U);
    EXPECT_TRUE(selected[0].empty());  // a dense layer attends to all it has
    EXPECT_NEAR(step.at("attention_mass_kept")[0].get<double>(), 1.0, 1e-4);
    for (size_t layer = 1; layer < 3; ++layer) {
      ASSERT_EQ(selected[layer].size(), 2U);
      for (const json& list : selected[layer]) {
        EXPECT_EQ(list.back(), newest);
        EXPECT_LT(list.size(), 60U);
      }
      EXPECT_LT(step.at("attention_mass_kept")[layer].get<double>(), 1.0);
    }
  }
  EXPECT_EQ(result.at("layers")[1].at("positions")[0].size(), static_cast<size_t>(kPrompt));
}

TEST(Inspect, OfAVerifierTheDraftersCacheIsShown) {
  const json result = inspected("vericache:drafter=(streaming_llm:keep=0.5)");
  EXPECT_EQ(result.at("method").at("name"), "vericache");
  EXPECT_EQ(result.at("inspected").at("name"), "streaming_llm");
  EXPECT_EQ(result.at("layers")[0].at("positions")[0].size(), 60U);
}

TEST(Inspect, TheStepsOfFullKvAreThoseOfGeneration) {
  const json result = inspected("full");
  EXPECT_EQ(result.at("steps")[0].at("token"), result.at("next")[0].at("id"));
  EXPECT_EQ(result.at("steps")[1].at("token"), result.at("steps")[0].at("top")[0].at("id"));
}

TEST(Inspect, ThePictureHoldsALineForEveryRunOfKeptPositions) {
  const ScratchFolder scratch;
  const auto svg_of = [&](const std::string& method) {
    const std::filesystem::path file = scratch / "kept.svg";
    const Finished finished =
        run_inspect(method, {"--picture", file.string(), "--output", (scratch / "k.json").string()});
    EXPECT_EQ(finished.code, 0) << finished.err;
    EXPECT_EQ(finished.out, "");
    std::ifstream stream(file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  const auto lines = [](const std::string& svg) {
    int count = 0;
    for (size_t at = svg.find("<path"); at != std::string::npos; at = svg.find("<path", at + 1)) ++count;
    return count;
  };
  EXPECT_EQ(lines(svg_of("full")), 3 * 2);                                // one run for each layer and head
  EXPECT_EQ(lines(svg_of("streaming_llm:sinks=4,keep=0.5")), 3 * 2 * 2);  // sinks, newest
}

TEST(Inspect, WrongRequestsAreRefused) {
  expect_refused(run_inspect("full", {"--steps", "-1"}), "--steps: found -1, expected 0 or more");
  expect_refused(run_inspect("full", {"--picture", "kept.png"}), "expected a name that ends in .svg");
  expect_refused(run_inspect("snapkv:keep=0.5,windw=3"), "did you mean \"window\"?");
  expect_refused(run_kvarena({"inspect", "--ids", "1"}), "--method: found nothing");
}

}  // namespace
}  // namespace kvarena::testing
