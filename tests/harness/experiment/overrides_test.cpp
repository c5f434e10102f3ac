// --set and its short forms: what they reach, what labels tell, and what is wrong with others.

#include "harness/experiment/overrides.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/harness/experiment/support.h"

namespace kvarena::experiment {
namespace {

TEST(Overrides, SetReachesEverythingByNumberOrName) {
  Overrides overrides;
  overrides.set = {"engine.seed=3", "methods.snapkv.keep=0.75", "methods[2].bits=4", "workloads.1.length=128",
                   "title=two words"};
  overrides.limit = 2;
  const ExperimentConfig config = parse(kSmallConfig, overrides);
  EXPECT_EQ(config.engine.seed, 3);
  ASSERT_EQ(config.methods.size(), 3U) << "the matrix no longer sweeps what was set";
  EXPECT_EQ(config.methods[1].label, "snapkv keep=0.75");
  EXPECT_EQ(config.methods[2].settings_json, R"({"bits":4})");
  EXPECT_EQ(config.workloads[1].settings_json, R"({"length":128})");
  EXPECT_EQ(config.workloads[0].limit, 2);
  EXPECT_EQ(config.workloads[1].limit, 2);
  EXPECT_EQ(config.title, "two words");
  EXPECT_EQ(nlohmann::json::parse(config.overrides_json)["limit"], 2);
  EXPECT_EQ(config.text, kSmallConfig) << "the text is the file's, byte for byte";
}

TEST(Overrides, SettingAKeyOfAnEntryWrittenAsANameWorks) {
  const std::string text =
      R"({"name": "m", "models": ["smollm2-135m"], "workloads": ["qasper"], "methods": ["full", "snapkv"]})";
  EXPECT_EQ(parse(text, {.set = {"methods.snapkv.keep=0.1"}}).methods[1].label, "snapkv keep=0.1");
  EXPECT_EQ(parse(text, {.set = {"models[0].dtype=f32"}}).models[0].dtype, "f32");
}

TEST(Overrides, ALabelTellsWhatWasSet) {
  const std::string text = R"({"name": "m", "models": ["smollm2-135m"],
    "workloads": [{"name": "needle", "label": "Needle", "length": 64}],
    "methods": [{"name": "full", "label": "Full KV"}, {"name": "snapkv", "keep": 0.5, "label": "SnapKV, half"},
                {"name": "snapkv", "matrix": {"keep": [0.1, 0.2]}, "label": "SnapKV {keep}"},
                {"name": "vericache", "label": "VC over {drafter}", "drafter": {"name": "snapkv", "keep": 0.2}}]})";
  const auto labels = [&](const std::vector<std::string>& set) {
    std::vector<std::string> list;
    for (const ComponentEntry& method : parse(text, {.set = set, .limit = 2}).methods) list.push_back(method.label);
    return list;
  };
  using Labels = std::vector<std::string>;
  EXPECT_EQ(labels({}), (Labels{"Full KV", "SnapKV, half", "SnapKV 0.1", "SnapKV 0.2", "VC over snapkv(keep=0.2)"}));
  EXPECT_EQ(labels({"methods[1].keep=0.25"})[1], "SnapKV, half [keep=0.25]");
  EXPECT_EQ(labels({"methods[1].keep=0.5"})[1], "SnapKV, half") << "nothing changed";
  EXPECT_EQ(labels({"methods[1].keep=0.25", "methods[1].window=8"})[1], "SnapKV, half [keep=0.25, window=8]");
  EXPECT_EQ(labels({"methods[2].keep=0.3"}),
            (Labels{"Full KV", "SnapKV, half", "SnapKV 0.3", "VC over snapkv(keep=0.2)"}));
  EXPECT_EQ(labels({"methods.vericache.drafter.keep=0.1"})[4], "VC over snapkv(keep=0.1)");
  EXPECT_EQ(labels({"methods.vericache.draft_length=9"})[4], "VC over snapkv(keep=0.2) [draft_length=9]");
  EXPECT_EQ(labels({"methods[1].label=Mine", "methods[1].keep=0.25"})[1], "Mine [keep=0.25]");
  EXPECT_EQ(labels({"methods[0].name=kivi", "methods[0].bits=2"})[0], "kivi bits=2") << "not full KV any more";
  const auto workload = [&](const std::string& set) { return parse(text, {.set = {set}}).workloads[0].label; };
  EXPECT_EQ(workload("workloads.Needle.length=128"), "Needle [length=128]");
  EXPECT_EQ(workload("workloads.Needle.limit=3"), "Needle") << "more samples of the same";
}

TEST(Overrides, ModelsAreReplaced) {
  TemporaryFolder folder;
  std::ofstream(folder / "tiny.gguf") << "x";
  const std::string file = (folder / "tiny.gguf").string();
  const ExperimentConfig config = parse(kSmallConfig, {.models = {"smollm2-135m", file}});
  ASSERT_EQ(config.models.size(), 2U);
  EXPECT_EQ(config.models[1].label, "tiny");
  EXPECT_EQ(config.models[1].file("/home").string(), file);
}

TEST(Overrides, NamesWithDotsAreNamesAndDevicesStay) {
  const auto device_of = [](const Overrides& overrides) { return parse(kSmallConfig, overrides).models.at(0).device; };
  const std::string name = "llama-3.1-8b-instruct";
  EXPECT_EQ(device_of({.set = {"models." + name + ".device=cuda"}, .models = {name}}), "cuda");
  EXPECT_EQ(device_of({.set = {"models[0].device=cuda"}, .models = {name}}), "cuda");
  EXPECT_EQ(device_of({.set = {"models.smollm2-135m.device=cuda"}, .models = {"smollm2-135m"}}), "cuda");
  const std::string dotted = R"({"name": "d", "models": ["smollm2-135m"], "workloads": ["qasper"],
      "methods": ["full", {"name": "snapkv", "keep": 0.5, "label": "SnapKV 0.5"}]})";
  const ExperimentConfig config = parse(dotted, {.set = {"methods.SnapKV 0.5.keep=0.25"}});
  EXPECT_EQ(config.methods.at(1).label, "SnapKV 0.5 [keep=0.25]");
  EXPECT_NE(
      problems_of(kSmallConfig, {.set = {"models." + name + ".device=cuda"}}).find("expected a number or the name"),
      std::string::npos);
}

TEST(Overrides, TheNumberBehindTheLastEntryAddsOne) {
  const ExperimentConfig config =
      parse(kSmallConfig, {.set = {R"(methods[3]={"name": "snapkv", "keep": 0.5, "label": "more"})"}});
  EXPECT_EQ(config.methods.back().label, "more");
}

TEST(Overrides, WrongOnesAreExplained) {
  const auto with = [](const std::string& set) { return problems_of(kSmallConfig, {.set = {set}}); };
  EXPECT_NE(with("engine.seed").find("--set engine.seed: found no key.path=value"), std::string::npos);
  EXPECT_NE(with("=3").find("found no key.path=value"), std::string::npos);
  EXPECT_NE(with("a..b=3").find("found no key.path=value"), std::string::npos);
  EXPECT_NE(with("methods[9].keep=1").find("found number 9, expected 0 to 2"), std::string::npos);
  EXPECT_NE(with("methods[4]=knorm").find("found number 4, expected 0 to 2"), std::string::npos);
  EXPECT_NE(with("methods[3].keep=1").find("found number 3, expected 0 to 2"), std::string::npos);
  EXPECT_NE(with("methods.snapk.keep=1").find("did you mean \"snapkv\"?"), std::string::npos);
  EXPECT_NE(with("name.x.y=1").find("--set name.x.y=1"), std::string::npos) << with("name.x.y=1");
  EXPECT_NE(with("methods.snapkv.keep=7").find("methods[1].keep: found 7"), std::string::npos);
  EXPECT_NE(with("engine.sede=7").find("did you mean \"seed\"?"), std::string::npos);
  EXPECT_NE(problems_of(kSmallConfig, {.models = {"gpt-5"}}).find("models[0]: found model \"gpt-5\""),
            std::string::npos);
}

}  // namespace
}  // namespace kvarena::experiment
