// kvarena codecs on a random model of three layers.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/harness/cli/check.h"
#include "tests/harness/cli/tiny_model_folder.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;

class Codecs : public ::testing::Test {
 protected:
  Finished codecs(const std::vector<std::string>& more = {}, const json& methods = kMethods) {
    const json config = {{"name", "c"},
                         {"models", {"smollm2-135m"}},
                         {"workloads", {{{"name", "needle"}}}},
                         {"methods", methods},
                         {"published",
                          {{{"metric", "bits_per_number"},
                            {"source", "a paper"},
                            {"workloads", {"needle"}},
                            {"rows", {{{"model", "smollm2-135m"}, {"method", "K"}, {"values", {5}}}}}}}},
                         {"output", {{"database", "c.db"}}}};
    const std::string file = (folder_.path() / "c.json").string();
    std::ofstream(file) << config;
    std::vector<std::string> words{"codecs", file, "--model", model_.path(), "--context", "256", "--repeats", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return run_kvarena(words);
  }

  inline static const json kMethods = {
      {{"name", "full"}},
      {{"name", "kivi"}, {"bits", 4}, {"residual_length", 32}, {"label", "K"}},
      {{"name", "kivi"}, {"bits", 4}, {"over", {{"name", "snapkv"}, {"keep", 0.5}}}, {"label", "over"}},
      {{"name", "cachegen"}, {"label", "C"}}};
  ScratchFolder folder_;
  TinyModelFolder model_;
};

TEST_F(Codecs, AreMeasuredBesideWhatIsPublished) {
  const Finished finished = codecs({"--json"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const json report = json::parse(finished.out);
  EXPECT_EQ(report.at("tokens"), 256);
  ASSERT_EQ(report.at("codecs").size(), 2U);  // full KV is none, and a codec over fewer entries is another question
  const json& kivi = report["codecs"][0];
  EXPECT_EQ(kivi.at("codec"), "K");
  EXPECT_EQ(kivi.at("published_bits"), 5);
  EXPECT_EQ(kivi.at("source"), "a paper");
  EXPECT_NEAR(kivi.at("bits_per_number").get<double>(), 5, 0.1);
  EXPECT_GT(kivi.at("attention_speedup").get<double>(), 0);
  EXPECT_FALSE(report["codecs"][1].contains("published_bits"));
  EXPECT_FALSE(report["codecs"][1].contains("attention_speedup"));  // a stream
  for (const json& row : report["codecs"]) {
    for (const char* number : {"key_error", "value_error", "encode_mb_per_s", "decode_mb_per_s"}) {
      EXPECT_GT(row.at(number).get<double>(), 0) << number;
    }
  }
}

TEST_F(Codecs, ATableSaysTheSame) {
  const Finished finished = codecs();
  EXPECT_EQ(finished.code, 0) << finished.err;
  for (const char* part : {"256 tokens", "published", "attends", "K", "5.00", "Errors are squared"}) {
    EXPECT_TRUE(contains(finished.out, part)) << part << "\n" << finished.out;
  }
}

TEST_F(Codecs, WhatCannotBeMeasuredIsSaid) {
  expect_refused(codecs({}, {{{"name", "full"}}}), "no codec among its methods");
  expect_refused(codecs({"--context", "0"}), "--context");
  // One that leaves the whole prompt as it is costs its own row.
  const Finished finished = codecs(
      {}, {{{"name", "full"}}, {{"name", "kivi"}, {"residual_length", 4096}}, {{"name", "int8"}, {"label", "I"}}});
  EXPECT_EQ(finished.code, 1);
  EXPECT_TRUE(contains(finished.out, "packs nothing")) << finished.out;
  EXPECT_TRUE(contains(finished.out, "I")) << finished.out;
}

}  // namespace
}  // namespace kvarena::testing
