// Timing of equal requests in limited device memory: what is said of them, for plain requests and for a verifier whose
// full caches lie behind a link.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/engine/model_facts.h"
#include "harness/engine/session/request_bytes.h"
#include "harness/evaluate/timing.h"
#include "harness/method/registry.h"
#include "harness/storage/hierarchy.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena::evaluate {
namespace {

using experiment::SampleOutcome;
using experiment::TimingSettings;
using nlohmann::json;
using testing::tiny_model;
using testing::tiny_prompt;

constexpr int64_t kPrompt = 300;
constexpr int64_t kNewTokens = 20;

class TimingEvaluation : public ::testing::Test {
 protected:
  TimingEvaluation() : model_(tiny_model()) {
    testing::write_tiny_model(folder_.path(), 1);
    tokenizer_ = load_tokenizer(folder_.path() / "tokenizer.json");
    tiers_ = std::make_shared<storage::Hierarchy>(
        std::vector<storage::TierSettings>{{.tier = Tier::host, .link = {.name = "slow", .bytes_per_s = 500e6}}});
  }

  SampleOutcome evaluate(const json& spec, const TimingSettings& settings) {
    const Request request{.sample = &sample_,
                          .tokenizer = tokenizer_.get(),
                          .facts = model_facts(model_, {}, tiers_),
                          .prompt = tiny_prompt(kPrompt),
                          .stop = {.max_new_tokens = kNewTokens}};
    const EvaluatedMethod evaluated{.method = make_method(spec, "test"), .reference = spec["name"] == "full"};
    return evaluate_timing(model_, request, evaluated, settings);
  }

  static double value(const SampleOutcome& outcome, const std::string& metric) {
    for (const results::MetricValue& value : outcome.result.values) {
      if (value.metric == metric) return value.value;
    }
    return NAN;
  }

  [[nodiscard]] double full_mib(double caches) const {
    return caches * static_cast<double>(full_cache_bytes(model_, kPrompt + kNewTokens)) / 1048576;
  }

  testing::TemporaryFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Transformer model_;
  storage::HierarchyPtr tiers_;
  datasets::Sample sample_;
};

TEST_F(TimingEvaluation, AScheduleSaysWhatItDidWithTheLinkAndTheMemory) {
  const double room = full_mib(4);
  const TimingSettings settings{.repeats = 1, .warmup = 0, .batch = 5, .device_mib = room};
  const json spec = {{"name", "vericache"},
                     {"draft_length", 4},
                     {"schedule", "staggered"},
                     {"drafter", {{"name", "snapkv"}, {"keep", 0.05}}}};
  const SampleOutcome outcome = evaluate(spec, settings);
  ASSERT_EQ(outcome.failure, "");
  EXPECT_GT(value(outcome, "link_utilisation"), 0);
  EXPECT_DOUBLE_EQ(value(outcome, "link_gb_per_s"), 0.5);
  EXPECT_GT(value(outcome, "verify_share"), 0);
  EXPECT_LE(value(outcome, "verify_share"), 1);
  EXPECT_GE(value(outcome, "late_verifies"), 0);
  EXPECT_LE(value(outcome, "full_caches_kept"), 3);  // four have room without what is drafted on
  EXPECT_LE(value(outcome, "fallen_back"), 5);
  EXPECT_GT(value(outcome, "concurrent_requests"), 1);
  EXPECT_NEAR(value(outcome, "throughput_tokens_per_s"),
              1000 * value(outcome, "tokens_per_pass") / value(outcome, "mean_pass_ms"), 1e-6);
  EXPECT_GT(value(outcome, "link_bytes"), 0);
  EXPECT_LE(static_cast<double>(outcome.result.peak_bytes.at("device")), room * 1048576);
  EXPECT_GT(outcome.result.peak_bytes.at("host"), 0);
  for (const results::MetricValue& each : outcome.result.values) {
    if (each.metric == "link_utilisation") {
      EXPECT_EQ(each.storage, results::Storage::emulated);
    }
  }
}

TEST_F(TimingEvaluation, ReuseSaysWhatScoringAndChoosingCostBesideThePrefill) {
  const TimingSettings settings{.repeats = 1, .warmup = 0};
  const SampleOutcome outcome = evaluate({{"name", "cacheblend"}, {"chunk", 64}, {"recompute", 0.2}}, settings);
  ASSERT_EQ(outcome.failure, "");
  EXPECT_GT(value(outcome, "scoring_overhead"), 0);
  EXPECT_NEAR(value(outcome, "scoring_overhead") * value(outcome, "prefill_ms"),
              value(outcome, "score_ms") + value(outcome, "align_ms"), 1e-9);
  EXPECT_TRUE(std::isnan(value(evaluate({{"name", "full"}}, settings), "scoring_overhead")));
}

TEST_F(TimingEvaluation, PlainRequestsSayHowManyRanAtATime) {
  const TimingSettings settings{.repeats = 1, .warmup = 0, .batch = 5, .device_mib = full_mib(2.5)};
  const SampleOutcome outcome = evaluate({{"name", "full"}}, settings);
  EXPECT_EQ(value(outcome, "concurrent_requests"), 2);
  EXPECT_EQ(value(outcome, "batch_requests"), 5);
  EXPECT_TRUE(std::isnan(value(outcome, "link_utilisation")));
  const results::Series* gaps = nullptr;
  for (const results::Series& series : outcome.result.series) {
    if (series.name == "inter_token_latency_ms") gaps = &series;
  }
  ASSERT_NE(gaps, nullptr);
  EXPECT_GT(value(outcome, "end_to_end_ms"), value(outcome, "time_to_first_token_ms") +
                                                 0.5 * (kNewTokens - 1) * value(outcome, "inter_token_latency_ms"))
      << "from the prompt to the last of all tokens";
  EXPECT_TRUE(
      std::isnan(value(evaluate({{"name", "full"}}, {.repeats = 1, .warmup = 0, .batch = 2}), "concurrent_requests")));
}

}  // namespace
}  // namespace kvarena::evaluate
