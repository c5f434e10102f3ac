// The files of configs/hardware and configs/shapes, against what is known of these machines and models.

#include <gtest/gtest.h>

#include <map>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/cost_model/hardware.h"
#include "harness/cost_model/model_shape.h"
#include "tests/support/error_of.h"

namespace kvarena::cost_model {
namespace {

const std::filesystem::path kConfigs = std::filesystem::path(KVARENA_SOURCE_DIR) / "configs";

ModelShape shape(const std::string& name) { return read_shape(find_description(name, kConfigs / "shapes")); }
Hardware hardware(const std::string& name) { return read_hardware(find_description(name, kConfigs / "hardware")); }

TEST(Shapes, ParameterCountsAreThoseOfThePublishedCheckpoints) {
  // Numbers in the safetensors files, as the hub counts them; DeepSeek-V3 without its multi-token prediction layer.
  const std::map<std::string, int64_t> published = {{"llama-2-7b", 6'738'415'616},
                                                    {"longchat-7b-v1.5-32k", 6'738'415'616},
                                                    {"llama-2-13b", 13'015'864'320},
                                                    {"llama-3-8b", 8'030'261'248},
                                                    {"llama-3.1-8b", 8'030'261'248},
                                                    {"deepseek-r1-distill-llama-8b", 8'030'261'248},
                                                    {"llama-3.2-1b", 1'235'814'400},
                                                    {"llama-3.2-3b", 3'212'749'824},
                                                    {"llama-3.3-70b", 70'553'706'496},
                                                    {"mistral-7b-v0.2", 7'241'732'096},
                                                    {"mistral-7b-v0.3", 7'248'023'552},
                                                    {"mistral-small-24b", 23'572'403'200},
                                                    {"yi-coder-9b", 8'829'407'232},
                                                    {"qwen2.5-0.5b", 494'032'768},
                                                    {"qwen2.5-1.5b", 1'543'714'304},
                                                    {"qwen2.5-3b", 3'085'938'688},
                                                    {"qwen2.5-14b", 14'770'033'664},
                                                    {"qwen3-1.7b", 1'720'574'976},
                                                    {"qwen3-8b", 8'190'735'360},
                                                    {"qwen3-14b", 14'768'307'200},
                                                    {"qwen3-32b", 32'762'123'264},
                                                    {"qwen3-30b-a3b", 30'532'122'624},
                                                    {"qwen3-coder-30b-a3b", 30'532'122'624},
                                                    {"deepseek-v2-lite", 15'706'484'224},
                                                    {"deepseek-v3", 671'026'419'200},
                                                    {"smollm2-135m", 134'515'008}};
  for (const std::string& name : description_names(kConfigs / "shapes")) {
    ASSERT_TRUE(published.contains(name)) << name << ": add what its checkpoint holds";
    EXPECT_EQ(shape(name).parameter_count(), published.at(name)) << name;
  }
  EXPECT_EQ(description_names(kConfigs / "shapes").size(), published.size());
}

TEST(Shapes, CacheBytesOfATokenAreThoseThatThePapersState) {
  const auto gib_of_thousand = [](const std::string& name) {
    return 2.0 * 1000 * static_cast<double>(shape(name).numbers_per_entry()) / (1 << 30);
  };
  EXPECT_NEAR(gib_of_thousand("llama-3.1-8b"), 0.12, 0.005);                           // EvicPress, section 6.2
  EXPECT_NEAR(gib_of_thousand("qwen3-30b-a3b"), 0.0915, 0.0001);                       // EvicPress, section 6.2
  EXPECT_NEAR(32 * gib_of_thousand("qwen3-32b"), 7.81, 0.005);                         // EvicPress, section 2.2
  EXPECT_EQ(2 * 32768 * shape("llama-3.1-8b").numbers_per_entry(), int64_t{4} << 30);  // SpeContext, section 3
  EXPECT_EQ(shape("mistral-7b-v0.2").numbers_per_entry() * 2, 131072);
  EXPECT_EQ(shape("deepseek-v3").numbers_per_entry(), 61 * 576);  // arXiv:2412.19437: a latent of 512 and 64 rotated
}

TEST(Shapes, SparseModelsReadTheExpertsThatABatchMeets) {
  const ModelShape moe = shape("qwen3-30b-a3b");
  EXPECT_NEAR(moe.active_parameters(), 3.03e9, 0.02e9);  // "A3B", the embedding table not counted
  EXPECT_NEAR(moe.read_parameters(1e6), 30.53e9 - 151936.0 * 2048, 0.01e9);
  EXPECT_GT(moe.read_parameters(8), 4 * moe.active_parameters());
  EXPECT_NEAR(shape("deepseek-v3").active_parameters(), 36.6e9, 0.2e9);  // "37B activated", with the embedding row
  const ModelShape dense = shape("llama-3.1-8b");
  EXPECT_DOUBLE_EQ(dense.read_parameters(64), 8'030'261'248.0 - 128256.0 * 4096);
}

TEST(Hardware, EveryMachineIsKnown) {
  const std::map<std::string, std::pair<double, double>> known = {
      // memory GiB, memory GB/s of the whole machine
      {"rtx-pro-6000-96gb", {96, 1792}}, {"h100-nvl-94gb-x2", {188, 7876}}, {"h100-nvl-94gb", {94, 3938}},
      {"h100-80gb", {80, 3350}},         {"gh200-96gb", {96, 4000}},        {"a6000-48gb", {48, 768}},
      {"a100-40gb", {40, 1555}},         {"a100-80gb", {80, 2039}},         {"a800-80gb", {80, 2039}},
      {"rtx4060-laptop-8gb", {8, 256}},  {"rtx4060-laptop-4gb", {4, 256}},  {"h200-141gb", {141, 4800}},
      {"rtx4090-24gb", {24, 1008}}};
  for (const std::string& name : description_names(kConfigs / "hardware")) {
    ASSERT_TRUE(known.contains(name)) << name;
    const Hardware machine = hardware(name);
    EXPECT_NEAR(machine.memory_bytes() / (1 << 30), known.at(name).first, 1e-6) << name;
    EXPECT_NEAR(machine.memory_bytes_per_second() / 1e9, known.at(name).second, 1e-6) << name;
    EXPECT_GT(machine.host_link_bytes_per_second(), 0) << name;
    EXPECT_GT(machine.flop_per_second(), 1e13) << name;
  }
  EXPECT_EQ(description_names(kConfigs / "hardware").size(), known.size());
}

TEST(Hardware, MemoryToLinkRatiosAreThoseOfVeriCache) {  // Fig. 13b: 60 for H100 NVL, 10 for GH200
  const auto ratio = [](const Hardware& h) { return h.memory_bytes_per_second() / h.host_link_bytes_per_second(); };
  EXPECT_NEAR(ratio(hardware("h100-nvl-94gb-x2")), 60, 2);
  EXPECT_NEAR(ratio(hardware("gh200-96gb")), 10, 1.2);
  EXPECT_DOUBLE_EQ(hardware("rtx-pro-6000-96gb").link("store_remote").bytes_per_second(), 1.2e9);
}

TEST(Hardware, WhatIsAssumedSaysSo) { EXPECT_TRUE(hardware("a6000-48gb").efficiency.source.starts_with("assumed")); }

TEST(Descriptions, AllProblemsOfAFileAreToldAtOnce) {
  const std::string problems = testing::error_of([] {
    (void)parse_hardware(R"({"title": "x", "acelerators": 1, "memory_gib": {"value": -1, "source": "s"},
                             "memory_gb_per_s": {"value": 1, "source": ""}, "links": {"hots": {}}})",
                         "x", "x.json");
  });
  EXPECT_NE(problems.find("x.json.acelerators: found an unknown key"), std::string::npos) << problems;
  EXPECT_NE(problems.find("did you mean \"accelerators\""), std::string::npos) << problems;
  EXPECT_NE(problems.find("x.json.memory_gib.value: found -1, expected a number above 0"), std::string::npos);
  EXPECT_NE(problems.find("x.json.memory_gb_per_s.source: found an empty string"), std::string::npos) << problems;
  EXPECT_NE(problems.find("x.json.compute_tflop_per_s: found nothing"), std::string::npos) << problems;
  EXPECT_NE(problems.find("did you mean \"host\""), std::string::npos) << problems;

  const std::string contradiction = testing::error_of([] {
    (void)parse_shape(R"({"title": "x", "source": "s", "layers": 2, "hidden_size": 8, "q_heads": 3, "kv_heads": 2,
                          "head_dim": 4, "intermediate_size": 0, "vocab_size": 9, "max_position": 5, "experts": 4})",
                      "x", "x.json");
  });
  EXPECT_NE(contradiction.find("x.json.kv_heads: found 2, expected a divisor of q_heads, 3"), std::string::npos);
  EXPECT_NE(contradiction.find("x.json.experts_per_token: found 0, expected 1 to experts, 4"), std::string::npos);
}

TEST(Descriptions, AnUnknownNameListsTheKnownOnes) {
  const std::string problem = testing::error_of([] { (void)hardware("a6000-48g"); });
  EXPECT_NE(problem.find("did you mean \"a6000-48gb\""), std::string::npos) << problem;
  EXPECT_NE(problem.find("rtx-pro-6000-96gb"), std::string::npos);
  const std::string link = testing::error_of([] { (void)hardware("a6000-48gb").link("disk"); });
  EXPECT_NE(link.find("no link \"disk\", expected one of: host, peer"), std::string::npos) << link;
}

}  // namespace
}  // namespace kvarena::cost_model
