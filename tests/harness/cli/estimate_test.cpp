// kvarena estimate as a user runs it.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/harness/cli/check.h"
#include "tests/harness/cli/tiny_model_folder.h"

namespace kvarena::testing {
namespace {

using nlohmann::json;

TEST(EstimateCommand, PrintsATableThatSaysItIsModelled) {
  const Finished finished = run_kvarena({"estimate", "--model", "llama-3.1-8b", "--hardware", "h100-80gb", "--context",
                                         "8k", "--kv-bits", "2", "--keep", "0.25", "--cache", "mine:bits=8"});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(finished.out.rfind("Modelled, not measured", 0), 0U) << finished.out;
  for (const char* word : {"full KV", "2 bits", "keep 0.25", "mine", "bound by", "assumed"}) {
    EXPECT_TRUE(contains(finished.out, word)) << word << "\n" << finished.out;
  }
}

TEST(EstimateCommand, JsonHoldsInputsAndRows) {
  const Finished finished = run_kvarena(
      {"estimate", "--model", "mistral-7b-v0.2", "--hardware", "a6000-48gb", "--context", "2048", "--json"});
  const json out = json::parse(finished.out);
  EXPECT_TRUE(out.at("modelled").get<bool>());
  EXPECT_EQ(out.at("rows").size(), 1U);
  EXPECT_GT(out.at("rows")[0].at("batch").get<int64_t>(), 50);
  EXPECT_FALSE(out.at("hardware").at("memory_gib").at("source").get<std::string>().empty());
}

TEST(EstimateCommand, PlansDraftingFromAcceptance) {
  const ScratchFolder scratch;
  std::ofstream(scratch / "acceptance.json")
      << R"({"source": "a test", "curves": [{"keep": 0.25, "independent": 0.98}]})";
  std::vector<std::string> words{"estimate",   "--model",           "mistral-small-24b",
                                 "--hardware", "rtx-pro-6000-96gb", "--context",
                                 "32k",        "--acceptance",      (scratch / "acceptance.json").string()};
  const Finished finished = run_kvarena(words);
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(contains(finished.out, "acceptance: a test")) << finished.out;
  EXPECT_TRUE(contains(finished.out, "offloaded"));

  const auto staggered = [&](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return json::parse(run_kvarena(words).out).at("plans").at(0).at("schedules").at(0);
  };
  const json there = staggered({"--json"});
  const json loaded = staggered({"--load-at-arrival"});
  EXPECT_GT(there.at("throughput_tokens_per_s").get<double>(), loaded.at("throughput_tokens_per_s").get<double>());
}

TEST(EstimateCommand, PlansFromTheDraftsOfARun) {
  const ScratchFolder scratch;
  const TinyModelFolder folder;
  const json drafter = {{"name", "streaming_llm"}, {"keep", 0.5}};
  std::ofstream(scratch / "drafts.json") << json{
      {"name", "drafts"},
      {"models", {folder.path()}},
      {"workloads", {{{"name", "needle"}, {"words", {16}}, {"limit", 2}}}},
      {"methods",
       {"full",
        drafter,
        {{"name", "vericache"}, {"draft_length", 4}, {"drafter", drafter}, {"label", "drafts, x = 4"}},
        {{"name", "vericache"}, {"draft_length", 8}, {"drafter", drafter}, {"label", "drafts, x = 8"}}}},
      {"engine", {{"max_new_tokens", 24}}},
      {"output", {{"database", "drafts.db"}}}};
  const Finished ran = run_kvarena({"run", "drafts.json"}, {.folder = scratch.path()});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const auto plan = [&](const std::string& file) {
    return run_kvarena({"estimate", "--model", "mistral-small-24b", "--hardware", "rtx-pro-6000-96gb", "--context",
                        "32k", "--acceptance", file, "--json"},
                       {.folder = scratch.path()});
  };
  const Finished finished = plan("drafts.db");
  ASSERT_EQ(finished.code, 0) << finished.err;
  const json row = json::parse(finished.out).at("plans").at(0);
  EXPECT_EQ(row.at("drafter"), "drafts");
  EXPECT_NEAR(row.at("keep").get<double>(), 0.5, 0.1) << "as measured, of the method that ran alone";
  EXPECT_NE(row.at("keep").get<double>(), 0.5);
  EXPECT_LE(row.at("draft_length").get<int64_t>(), 8);
  EXPECT_EQ(row.at("schedules").size(), 3U);
}

TEST(EstimateCommand, ValidatesAgainstABenchmark) {
  const ScratchFolder scratch;
  std::ofstream(scratch / "bench.json") << R"({"benchmarks": [
    {"name": "decode_bench/bf16/depth:0/sequences:1/real_time", "real_time": 17, "time_unit": "ms", "read_GB/s": 20},
    {"name": "decode_bench/bf16/depth:8192/sequences:1/real_time", "real_time": 40, "time_unit": "ms", "read_GB/s": 20},
    {"name": "prefill_bench/bf16/tokens:512/real_time", "real_time": 2.6, "time_unit": "s", "flops": 5e10, "of_fma": 0.5}]})";
  const std::string bench = (scratch / "bench.json").string();
  const Finished alone = run_kvarena({"estimate", "--calibrate", bench});
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_TRUE(contains(alone.out, "calibrates")) << alone.out;
  EXPECT_TRUE(contains(alone.out, "median error"));
  const Finished here = run_kvarena(
      {"estimate", "--model", "smollm2-135m", "--hardware", "this", "--calibrate", bench, "--batch", "1", "--json"});
  ASSERT_EQ(here.code, 0) << here.err;
  EXPECT_TRUE(json::parse(here.out).at("efficiency").at("source").get<std::string>().starts_with("measured"));
}

TEST(EstimateCommand, ReadsACheckpointsOwnDescription) {
  const TinyModelFolder folder;
  const Finished finished = run_kvarena(
      {"estimate", "--model", folder.path(), "--hardware", "rtx4060-laptop-4gb", "--context", "128", "--json"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_GT(json::parse(finished.out).at("model").at("parameters").get<int64_t>(), 0);
}

TEST(EstimateCommand, MeasuresAMethodBeforeItIsModelled) {
  const TinyModelFolder folder;
  const Finished finished =
      run_kvarena({"estimate", "--model", "llama-3.1-8b", "--hardware", "h100-80gb", "--context", "8k", "--measure-on",
                   folder.path(), "--method", "streaming_llm:keep=0.25", "--method", "ideal_topk:keep=0.25", "--json"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const json out = json::parse(finished.out);
  const json& methods = out.at("measured").at("methods");
  ASSERT_EQ(methods.size(), 2U);
  for (const json& cost : methods[0].at("costs")) {
    const double prompt = cost.at("prompt");
    EXPECT_NEAR(cost.at("attended").get<double>() / prompt, 0.25, 0.02) << cost;
    EXPECT_GE(cost.at("resident").get<double>() / prompt, 0.25 - 0.02) << "entries and their positions" << cost;
    EXPECT_LE(cost.at("resident").get<double>() / prompt, 0.4) << cost;
  }
  for (const json& cost : methods[1].at("costs")) {
    EXPECT_NEAR(cost.at("resident").get<double>() / cost.at("prompt").get<double>(), 1, 0.02) << "it keeps all";
    EXPECT_LT(cost.at("attended").get<double>() / cost.at("prompt").get<double>(), 0.5) << cost;
  }
  const json& rows = out.at("rows");
  ASSERT_EQ(rows.size(), 3U) << "full KV and both";
  EXPECT_GT(rows[1].at("batch").get<int64_t>(), 2 * rows[0].at("batch").get<int64_t>());
  EXPECT_LE(rows[2].at("batch").get<int64_t>(), rows[0].at("batch").get<int64_t>());
  EXPECT_GT(rows[2].at("throughput_tokens_per_s").get<double>(), rows[0].at("throughput_tokens_per_s").get<double>());
  EXPECT_TRUE(out.at("modelled").get<bool>());
}

TEST(EstimateCommand, PublishedIsThePageOfTheDocs) {
  const Finished finished = run_kvarena({"estimate", "--published"});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(finished.out.rfind("# Published and modelled", 0), 0U);
}

TEST(EstimateCommand, MistakesAreOneSentence) {
  const std::vector<std::string> machine = {"estimate", "--model", "llama-3.1-8b", "--hardware", "h100-80gb"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> words = machine;
    words.insert(words.end(), more.begin(), more.end());
    return run_kvarena(words);
  };
  expect_refused(run_kvarena({"estimate"}), "--model: found nothing");
  expect_refused(run_kvarena({"estimate", "--model", "llama-3.1-8", "--hardware", "x"}),
                 "did you mean \"llama-3.1-8b\"");
  expect_refused(with({"--context", "8kb"}), "--context: found 8kb, expected a number of tokens");
  expect_refused(with({"--keep", "1.5"}), "--keep.keep: found 1.5");
  expect_refused(with({"--kv-bits", "few"}), "--kv-bits: found few, expected a number");
  expect_refused(with({"--cache", "mine:bit=2"}), "did you mean \"bits\"");
  expect_refused(with({"--method", "snapkvv"}), "did you mean \"snapkv\"");
  expect_refused(with({"--method", "ngram"}), "a method that compresses or selects");
  expect_refused(run_kvarena({"estimate", "--model", "llama-3.1-8b", "--hardware", "this"}), "--calibrate FILE");
}

}  // namespace
}  // namespace kvarena::testing
