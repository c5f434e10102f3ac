// kvarena audit on a random model of three layers.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/harness/cli/check.h"
#include "tests/harness/cli/tiny_model_folder.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;

Finished audit(const std::string& method, const std::vector<std::string>& more = {}) {
  static const TinyModelFolder model;
  std::vector<std::string> words{"audit",     "--model", model.path(), "--prompts", "3",
                                 "--context", "100",     "--tokens",   "60",        method};
  words.insert(words.end(), more.begin(), more.end());
  return run_kvarena(words);
}

json audited(const std::string& method, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = more;
  words.emplace_back("--json");
  const Finished finished = audit(method, words);
  EXPECT_EQ(finished.code, 0) << finished.err;
  return json::parse(finished.out, nullptr, false);
}

TEST(Audit, AVerifierIsEqualToTheLastBit) {
  const std::string method = R"({"name": "vericache", "draft_length": 6, "drafter": {"name": "snapkv", "keep": 0.3}})";
  for (const char* temperature : {"0", "0.8"}) {
    const json result = audited(method, {"--temperature", temperature});
    EXPECT_EQ(result.at("equal_tokens"), 3);
    EXPECT_EQ(result.at("equal_logits"), 3);
    EXPECT_EQ(result.at("diverged"), 0);
    EXPECT_EQ(result.at("reference"), "full KV");
    EXPECT_GT(result.at("noise_floor").get<double>(), 0);
  }
}

TEST(Audit, ALossyMethodPartsAndTheGapThereIsGiven) {
  const json result = audited("streaming_llm:keep=0.1");
  EXPECT_GT(result.at("diverged").get<int>(), 0);
  int within = 0;
  for (const json& prompt : result.at("prompts")) {
    EXPECT_EQ(prompt.at("tokens"), 60);
    if (prompt.at("first_divergence").is_null()) continue;
    EXPECT_FALSE(prompt.at("same_logits").get<bool>());
    EXPECT_GE(prompt.at("gap").get<double>(), 0);
    EXPECT_EQ(prompt.at("within_noise").get<bool>(),
              prompt.at("gap").get<double>() <= result.at("noise_floor").get<double>());
    within += prompt.at("within_noise").get<bool>() ? 1 : 0;
  }
  EXPECT_EQ(result.at("within_noise"), within);
}

TEST(Audit, AVerifierOnAnotherCacheIsMeasuredByThatCache) {
  const json result = audited("quantspec:group_size=16,buffer=16");
  EXPECT_EQ(result.at("reference").at("name"), "quantspec_kv");
  EXPECT_EQ(result.at("equal_logits"), 3);
}

TEST(Audit, SaysItInWordsAndRefusesWhatMakesNoSense) {
  const Finished finished = audit("knorm:keep=0.2");
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(contains(finished.out, "answers are equal")) << finished.out;
  EXPECT_TRUE(contains(finished.out, "Noise: with the cache in f32")) << finished.out;
  EXPECT_TRUE(contains(finished.out, " part from the reference's")) << finished.out;
  EXPECT_TRUE(contains(audit("vericache:drafter=(snapkv:keep=0.3)").out, "Lossless on these prompts"));
  expect_refused(audit("knorm:keep=0.2", {"--data", "/nowhere"}), "nowhere");
  expect_refused(run_kvarena({"audit", "knorm:keep=0.2", "--prompts", "0"}), "--prompts");
}

}  // namespace
}  // namespace kvarena::testing
