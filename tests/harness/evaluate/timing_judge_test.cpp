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

using experiment::TimingSettings;
using experiment::Verdict;
using nlohmann::json;
using testing::tiny_model;
using testing::tiny_prompt;

constexpr int64_t kPrompt = 300;
constexpr int64_t kNewTokens = 20;

class TimingJudge : public ::testing::Test {
 protected:
  TimingJudge() : model_(tiny_model()) {
    testing::write_tiny_model(folder_.path(), 1);
    tokenizer_ = load_tokenizer(folder_.path() / "tokenizer.json");
    tiers_ = std::make_shared<storage::Hierarchy>(
        std::vector<storage::TierSettings>{{.tier = Tier::host, .link = {.name = "slow", .bytes_per_s = 500e6}}});
  }

  Verdict judge(const json& spec, const TimingSettings& settings) {
    const Request request{.sample = &sample_,
                          .tokenizer = tokenizer_.get(),
                          .facts = model_facts(model_, {}, tiers_),
                          .prompt = tiny_prompt(kPrompt),
                          .stop = {.max_new_tokens = kNewTokens}};
    const JudgedMethod judged{.method = make_method(spec, "test"), .reference = spec["name"] == "full"};
    return judge_timing(model_, request, judged, settings);
  }

  static double value(const Verdict& verdict, const std::string& metric) {
    for (const results::MetricValue& value : verdict.result.values) {
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
  Sample sample_;
};

TEST_F(TimingJudge, AScheduleSaysWhatItDidWithTheLinkAndTheMemory) {
  const double room = full_mib(4);
  const TimingSettings settings{.repeats = 1, .warmup = 0, .batch = 5, .device_mib = room};
  const json spec = {{"name", "vericache"},
                     {"draft_length", 4},
                     {"schedule", "staggered"},
                     {"drafter", {{"name", "snapkv"}, {"keep", 0.05}}}};
  const Verdict verdict = judge(spec, settings);
  ASSERT_EQ(verdict.failure, "");
  EXPECT_GT(value(verdict, "link_utilisation"), 0);
  EXPECT_GT(value(verdict, "verify_share"), 0);
  EXPECT_LE(value(verdict, "verify_share"), 1);
  EXPECT_GE(value(verdict, "late_verifies"), 0);
  EXPECT_GT(value(verdict, "concurrent_requests"), 1);
  EXPECT_GT(value(verdict, "throughput_tokens_per_s"), 0);
  EXPECT_GT(value(verdict, "link_bytes"), 0);
  EXPECT_LE(static_cast<double>(verdict.result.peak_bytes.at("device")), room * 1048576);
  EXPECT_GT(verdict.result.peak_bytes.at("host"), 0);
  for (const results::MetricValue& each : verdict.result.values) {
    if (each.metric == "link_utilisation") {
      EXPECT_EQ(each.storage, results::Storage::emulated);
    }
  }
}

TEST_F(TimingJudge, PlainRequestsSayHowManyRanAtATime) {
  const TimingSettings settings{.repeats = 1, .warmup = 0, .batch = 5, .device_mib = full_mib(2.5)};
  const Verdict verdict = judge({{"name", "full"}}, settings);
  EXPECT_EQ(value(verdict, "concurrent_requests"), 2);
  EXPECT_TRUE(std::isnan(value(verdict, "link_utilisation")));
  EXPECT_TRUE(
      std::isnan(value(judge({{"name", "full"}}, {.repeats = 1, .warmup = 0, .batch = 2}), "concurrent_requests")));
}

}  // namespace
}  // namespace kvarena::evaluate
