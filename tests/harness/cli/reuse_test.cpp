// kvarena reuse on a random model of three layers.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/harness/cli/check.h"
#include "tests/harness/cli/tiny_model_folder.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;

class Reuse : public ::testing::Test {
 protected:
  Finished reuse(const std::vector<std::string>& more = {}) {
    const std::string text = (folder_.path() / "text.txt").string();
    std::ofstream file(text);
    for (int i = 0; i < 400; ++i) file << "word " << i << ' ';
    file.close();
    std::vector<std::string> words{"reuse", "--prompt-file", text, "--model", model_.path(), "--context", "128"};
    for (const char* word : {"--repeats", "1", "--method", "full_recompute", "--method", "full_reuse"}) {
      words.emplace_back(word);
    }
    words.insert(words.end(), more.begin(), more.end());
    return run_kvarena(words);
  }

  ScratchFolder folder_;
  TinyModelFolder model_;
};

TEST_F(Reuse, MeasuresEachMethodBesideAFullPrefill) {
  const Finished finished = reuse({"--json"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const json report = json::parse(finished.out);
  EXPECT_EQ(report.at("methods").size(), 2U);
  const json& all = report["methods"][0];
  EXPECT_EQ(all.at("recompute_share"), 1) << "everything is computed anew";
  EXPECT_NEAR(all.at("kv_deviation").get<double>(), 0, 1e-6);
  const json& none = report["methods"][1];
  EXPECT_LT(none.at("recompute_share").get<double>(), 0.5);
  EXPECT_EQ(none.at("kv_deviation_by_layer").size(), 3U);
  EXPECT_GT(report.at("full_prefill_ms").get<double>(), 0);
}

TEST_F(Reuse, PrintsATableUnlessAskedForJson) {
  const Finished finished = reuse();
  ASSERT_EQ(finished.code, 0) << finished.err;
  for (const char* said : {"computed anew", "full_recompute", "full_reuse", "100%", "agree by"}) {
    EXPECT_NE(finished.out.find(said), std::string::npos) << said << " in\n" << finished.out;
  }
}

TEST_F(Reuse, ShowsTheTextThatAMethodComputesAnew) {
  const std::vector<std::string> first_of_each = {"--method", "epic:tokens=2,chunk=32"};
  const Finished as_json = reuse({"--json", first_of_each[0], first_of_each[1]});
  ASSERT_EQ(as_json.code, 0) << as_json.err;
  const json methods = json::parse(as_json.out).at("methods");
  const auto texts = methods.at(2).at("recomputed_text").get<std::vector<std::string>>();
  EXPECT_EQ(texts.size(), 3U) << "128 tokens in chunks of 32, the first of which is exact";
  EXPECT_TRUE(methods.at(1).at("recomputed_text").empty());
  const Finished printed = reuse({"--spans", first_of_each[0], first_of_each[1]});
  ASSERT_EQ(printed.code, 0) << printed.err;
  for (const std::string& text : texts)
    EXPECT_NE(printed.out.find("\n  " + json(text).dump() + "\n"), std::string::npos) << text << "\n" << printed.out;
}

TEST_F(Reuse, AnswersWithWhatEachMethodMadeOfThePrompt) {
  const Finished finished = reuse({"--json", "--answer", "6"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const json report = json::parse(finished.out);
  const std::string full = report.at("answer");
  EXPECT_FALSE(full.empty());
  EXPECT_EQ(report["methods"][0].at("answer"), full) << "everything is computed anew";
  const Finished printed = reuse({"--answer", "6"});
  EXPECT_NE(printed.out.find("full KV answers " + json(full).dump()), std::string::npos) << printed.out;
  expect_refused(reuse({"--answer", "-1"}), "at least 0");
}

TEST_F(Reuse, RefusesAMethodThatReusesNothing) {
  expect_refused(reuse({"--method", "kivi"}), "a method that reuses entries");
}

}  // namespace
}  // namespace kvarena::testing
