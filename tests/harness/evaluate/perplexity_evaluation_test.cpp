// A text scored token by token on a small random model, against the same passes done by hand.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/engine/model_facts.h"
#include "harness/evaluate/perplexity.h"
#include "harness/method/registry.h"
#include "metrics/distribution/divergence.h"
#include "tests/support/tiny_model.h"

namespace kvarena::evaluate {
namespace {

using experiment::SampleOutcome;
using nlohmann::json;
using testing::tiny_model;
using testing::tiny_prompt;

class PerplexityEvaluation : public ::testing::Test {
 protected:
  static constexpr int64_t kTokens = 300;
  static constexpr int64_t kScored = 150;  // more than two of the readings on the full cache

  PerplexityEvaluation() : model_(tiny_model()), facts_(model_facts(model_)), text_(tiny_prompt(kTokens, 3)) {
    sample_.extras = json{{"score_prompt", true}, {"scored_tokens", kScored}, {"words", 200}}.dump();
  }

  SampleOutcome evaluate(const json& spec, int64_t chunk = 64, double temperature = 0) {
    const EvaluatedMethod method{.method = make_method(spec, "test"), .reference = spec["name"] == "full"};
    const Request request{
        .sample = &sample_, .facts = facts_, .prompt = text_, .sampling = {.temperature = temperature}};
    SampleOutcome outcome = evaluate_perplexity(model_, request, std::span(&method, 1), chunk).front();
    EXPECT_EQ(outcome.failure, "");
    return outcome;
  }

  static double value(const SampleOutcome& outcome, const std::string& metric) {
    for (const results::MetricValue& value : outcome.result.values) {
      if (value.metric == metric) return value.value;
    }
    return NAN;
  }

  static std::vector<float> series(const SampleOutcome& outcome, const std::string& name) {
    for (const results::Series& series : outcome.result.series) {
      if (series.name == name) return series.values;
    }
    return {};
  }

  /// Logits of every token after the context, fed one at a time to a cache of the method's.
  std::vector<std::vector<float>> logits_of(const json& spec) {
    const auto method = make_method(spec, "test");
    const Prefill prompt = prefill(model_, std::span(text_).first(kTokens - kScored), method->needs(), 512, facts_);
    std::vector<std::vector<float>> rows;
    SessionOptions options{.stop = {.max_new_tokens = kScored}};
    options.forced.emplace(text_.end() - kScored, text_.end());
    options.on_logits = [&](int64_t, std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); };
    const auto session = start_session(model_, prompt, *method, std::move(options));
    Session* const one[] = {session.get()};
    run_together(model_, one);
    return rows;
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
  std::vector<int32_t> text_;
  datasets::Sample sample_;
};

TEST_F(PerplexityEvaluation, TheFullCacheIsNowhereAwayFromItself) {
  for (const int64_t chunk : {7, 64, 512}) {
    const SampleOutcome outcome = evaluate({{"name", "full"}}, chunk);
    EXPECT_EQ(value(outcome, "kl_nats_sum"), 0.0);
    EXPECT_EQ(value(outcome, "top1_agreement"), 1.0);
    EXPECT_EQ(series(outcome, "kl_nats").size(), static_cast<size_t>(kScored));
  }
}

TEST_F(PerplexityEvaluation, EachStepIsComparedWithTheFullCachesOnTheSameText) {
  const json spec = {{"name", "streaming_llm"}, {"keep", 0.3}};
  const auto full = logits_of({{"name", "full"}});
  const auto lossy = logits_of(spec);
  ASSERT_EQ(lossy.size(), static_cast<size_t>(kScored));
  for (const double temperature : {0.0, 0.5}) {  // greedy answers are compared at 1
    const SampleOutcome outcome = evaluate(spec, 64, temperature);
    const std::vector<float> kl = series(outcome, "kl_nats");
    ASSERT_EQ(kl.size(), lossy.size());
    double sum = 0;
    for (size_t i = 0; i < kl.size(); ++i) {
      const double expected =
          metrics::kl_nats(std::span<const float>(full[i]), lossy[i], temperature > 0 ? temperature : 1);
      EXPECT_EQ(kl[i], static_cast<float>(expected)) << "step " << i;
      sum += expected;
    }
    EXPECT_GT(sum, 0);
    EXPECT_NEAR(value(outcome, "kl_nats_sum"), sum, 1e-9 * sum);
  }
}

TEST_F(PerplexityEvaluation, AVerifierThatTakesSeveralTokensAPassIsComparedAtEach) {
  const SampleOutcome outcome = evaluate({{"name", "vericache"}, {"draft_length", 4}, {"drafter", {{"name", "kivi"}}}});
  EXPECT_EQ(series(outcome, "kl_nats").size(), static_cast<size_t>(kScored));
  EXPECT_EQ(value(outcome, "kl_nats_sum"), 0.0);
}

}  // namespace
}  // namespace kvarena::evaluate
