// kvarena papers: the papers' tables and figures, and that each config among them is sound.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "harness/core/files.h"
#include "tests/harness/cli/check.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;

TEST(Papers, EveryItemIsListedOnceAndCounted) {
  const Finished finished = run_kvarena({"papers", "--json"});
  ASSERT_EQ(finished.code, 0) << finished.err;  // every config was read: a name that is not registered stops it
  const json listing = json::parse(finished.out);
  std::set<std::string> names;
  int64_t covered = 0, runnable = 0, parts = 0, covered_parts = 0, links = 0;
  for (const json& item : listing["items"]) {
    EXPECT_TRUE(names.insert(item["item"]).second) << item["item"];
    covered += item["covered"].get<bool>() ? 1 : 0;
    runnable += item["runnable"].get<bool>() ? 1 : 0;
    if (item["kind"] != "illustration") parts += item["parts"]["all"].get<int64_t>();
    covered_parts += item["parts"]["covered"].get<int64_t>();
    EXPECT_FALSE(item["state"].get<std::string>().empty());
    if (item.contains("commands")) {
      const std::string small = item["commands"]["two_cores"];
      EXPECT_TRUE(small.starts_with("kvarena run configs/")) << item["item"];
      EXPECT_TRUE(contains(small, "--model smollm2-135m --limit 4") || !contains(small, "/papers/")) << small;
      EXPECT_TRUE(item["item"] != "evicpress/figure8" ||
                  small == "kvarena run configs/contexts.json --set 'serving.load=[0.5,1,2]'")
          << small << ": its curve is over the load";
      const std::string gpu = item["commands"]["gpu"];
      EXPECT_TRUE(contains(gpu, ".device=cuda")) << item["item"];
      const std::string config = item["config"];
      const bool emulated = contains(read_file(KVARENA_SOURCE_DIR "/" + config), "\"host_link\": \"pcie5_x16\"");
      EXPECT_EQ(contains(gpu, " --set engine.host_link=real"), emulated) << gpu << ": a device has a bus of its own";
      links += emulated ? 1 : 0;
    }
    if (item["runnable"].get<bool>()) {
      EXPECT_TRUE(item["covered"].get<bool>()) << item["item"];
    }
  }
  EXPECT_EQ(links, 7);
  const json& count = listing["count"];
  EXPECT_EQ(count["reproducible"].get<int64_t>(), covered + count["not_yet"].get<int64_t>());
  for (const json& item : listing["items"]) {
    if (item.value("command", "") == "kvarena estimate --published") {
      EXPECT_FALSE(item.value("inputs", json::array()).empty()) << item["item"] << " is modelled from no file";
    }
  }
  EXPECT_EQ(count["parts"], parts);
  EXPECT_EQ(count["covered_parts"], covered_parts);
  EXPECT_LT(covered_parts, parts);
  EXPECT_EQ(count["items"], names.size());
  EXPECT_EQ(count["covered"], covered);
  EXPECT_EQ(count["runnable"], runnable);
  EXPECT_EQ(count["items"].get<int64_t>(),
            covered + count["illustrations"].get<int64_t>() + count["not_yet"].get<int64_t>());
  for (const char* paper : {"evicpress/", "speccache/", "specache/", "specontext/", "vericache/"}) {
    EXPECT_TRUE(std::ranges::any_of(names, [&](const std::string& name) { return name.rfind(paper, 0) == 0; }))
        << paper;
  }
}

TEST(Papers, OneItemSaysWhatItNeedsAndHowToRunIt) {
  const Finished finished = run_kvarena({"papers", "vericache/figure4"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  for (const char* part :
       {"vericache/figure4", "kvarena run configs/papers/vericache/figure4.json --model smollm2-135m",
        "TurboQuant k4v3", "agentic-traces"}) {
    EXPECT_TRUE(contains(finished.out, part)) << part << "\n" << finished.out;
  }
}

TEST(Papers, EverythingThatAnItemLacksIsListedWithWhatBringsIt) {
  const ScratchFolder empty;
  const RunSetup without{.environment = {{"KVARENA_HOME", empty.path().string()}, {"KVARENA_DATA", ""}}};
  const auto text = [&](const std::string& item) {  // in one line
    std::istringstream words(run_kvarena({"papers", item}, without).out);
    std::string joined;
    for (std::string word; words >> word;) joined += word + " ";
    return joined;
  };
  const std::string judged = text("specontext/figure9");
  for (const char* part : {"kvarena fit specontext --model llama-3.1-8b-instruct", "a judge for judged_quality",
                           "kvarena judge specontext.db --judge-url URL --judge-model NAME",
                           "--set models.llama-3.1-8b-instruct.device=cuda"}) {
    EXPECT_TRUE(contains(judged, part)) << part << "\n" << judged;
  }
  EXPECT_TRUE(contains(text("speccache/figure10"), "weights qwen2.5-0.5b-instruct")) << text("speccache/figure10");
  EXPECT_TRUE(contains(text("evicpress/figure7"), "sentence encoder")) << text("evicpress/figure7");
  EXPECT_TRUE(contains(text("evicpress/figure7"), "kvarena run configs/contexts.json")) << text("evicpress/figure7");
}

TEST(Papers, AnItemForAGpuIsNotRunOnTheCpuWithoutAWord) {
  if (!default_model_is_there()) GTEST_SKIP() << "the default model is absent: run scripts/setup";
  const auto dry_run = [](const std::string& item) {
    return run_kvarena({"run", std::string(KVARENA_SOURCE_DIR) + "/configs/papers/" + item + ".json", "--model",
                        "smollm2-135m", "--limit", "1", "--dry-run"});
  };
  const Finished timed = dry_run("specontext/figure10a");
  EXPECT_EQ(timed.code, 0) << timed.err;
  EXPECT_TRUE(contains(timed.err, "--set models.smollm2-135m.device=cuda")) << timed.err;
  EXPECT_FALSE(contains(dry_run("specontext/figure8").err, "GPU"));
}

TEST(Papers, AnItemThatIsCoveredInPartSaysHowMuch) {
  const Finished finished = run_kvarena({"papers", "vericache/figure13"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(contains(finished.out, "5 of 8 printed values, runnable here")) << finished.out;
}

TEST(Papers, WhatIsMissingIsFetchedOnce) {
  const ScratchFolder empty;
  const RunSetup without{.environment = {{"KVARENA_HOME", empty.path().string()}, {"KVARENA_DATA", ""}}};
  const Finished finished = run_kvarena({"papers", "specache/table1"}, without);
  ASSERT_EQ(finished.code, 0) << finished.err;
  const auto count = [&](const std::string& part) {
    int64_t found = 0;
    for (size_t at = finished.out.find(part); at != std::string::npos; at = finished.out.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("kvarena workloads pull longbench"), 1) << finished.out;
  EXPECT_EQ(count("hf download meta-llama/Llama-2-7b-chat-hf"), 1) << finished.out;
  EXPECT_FALSE(contains(run_kvarena({"papers", "specontext/figure5"}, without).out, "published"))
      << "it has no numbers";
}

TEST(Papers, APaperAloneListsItsItems) {
  const Finished finished = run_kvarena({"papers", "evicpress"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(contains(finished.out, "figure3"));
  EXPECT_FALSE(contains(finished.out, "vericache"));
}

TEST(Papers, AnUnknownItemNamesTheNearest) {
  expect_refused(run_kvarena({"papers", "vericache/figure44"}), "did you mean \"vericache/figure4\"?");
}

}  // namespace
}  // namespace kvarena::testing
