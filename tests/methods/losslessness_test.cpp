// Lossy compression made lossless: whatever compressor drafts, however strongly, the tokens and logits that are
// verified are full KV's, bit for bit, alone and in batches that mix drafts, verifications and plain decoding. Every
// method that may draft x 3 settings x 20 prompts x 200 tokens.

#include <gtest/gtest.h>

#include <map>

#include "harness/core/files.h"
#include "harness/engine/session/session.h"
#include "tests/support/registered_method.h"

namespace kvarena {
namespace {

using nlohmann::json;

constexpr int kSettings = 3;
constexpr int kPrompts = 20;
constexpr int64_t kNewTokens = 200;

/// Values that make a method more or less lossy, by the parameter's name; those it does not take are left out.
const std::map<std::string, std::vector<json>>& strengths() {
  static const std::map<std::string, std::vector<json>> known = {
      {"keep", {0.1, 0.25, 0.6}}, {"recovery", {0.3, 0.6, 0.9}},    {"bits", {1, 2, 3, 4, 8}},    {"level", {1, 2, 3}},
      {"qp", {40, 28, 16}},       {"threshold", {0.0, -4.0, -8.0}}, {"sparsity", {0.9, 0.5, 0.2}}};
  return known;
}

/// The artifact that the settings' weights come from; "" where there are none.
std::string artifact_of(const json& spec) {
  const auto fitter = make_method(spec, "test")->fitter();
  return fitter == nullptr ? "" : fitter->artifact().stem();
}

/// The `index`-th of three settings, from strong to weak. Where nothing tells them apart only the drafts' length does.
/// All read the weights that the fixture fits.
json setting(const MethodEntry& entry, int index) {
  json spec = testing::active_settings(entry);
  for (const ParameterInfo& parameter : entry.parameters()) {
    const auto known = strengths().find(parameter.name);
    if (known == strengths().end()) continue;
    std::vector<json> taken;
    for (const json& value : known->second) {
      json tried = spec;
      tried[parameter.name] = value;
      if (check_method(tried, "test").empty() && artifact_of(tried) == artifact_of(spec)) taken.push_back(value);
    }
    if (!taken.empty()) spec[parameter.name] = taken[std::min(static_cast<size_t>(index), taken.size() - 1)];
  }
  return spec;
}

/// A session's output: tokens, and a digest of every bit of every step's logits.
struct Answer {
  std::vector<int32_t> tokens;
  std::string logits;
  bool operator==(const Answer&) const = default;
};

class Lossless : public testing::RegisteredMethod {
 protected:
  struct Noted {
    std::unique_ptr<Session> session;
    std::string bits;
  };

  std::unique_ptr<Noted> start(const Prefill& prompt, const Method& method) {
    auto noted = std::make_unique<Noted>();
    std::string& bits = noted->bits;
    noted->session = start_session(
        model_, prompt, method,
        {.stop = {.max_new_tokens = kNewTokens}, .on_logits = [&bits](int64_t, std::span<const float> row) {
           bits = sha256(bits + std::string(reinterpret_cast<const char*>(row.data()), row.size_bytes()));
         }});
    return noted;
  }

  std::vector<Answer> run(const std::vector<std::unique_ptr<Noted>>& noted) {
    std::vector<Session*> sessions;
    for (const auto& one : noted) sessions.push_back(one->session.get());
    run_together(model_, sessions);
    std::vector<Answer> answers;
    for (const auto& one : noted) {
      EXPECT_EQ(one->session->failure, "");
      answers.push_back({one->session->tokens, one->bits});
    }
    return answers;
  }

  Answer alone(const Prefill& prompt, const Method& method) {
    std::vector<std::unique_ptr<Noted>> one;
    one.push_back(start(prompt, method));
    return run(one).front();
  }
};

TEST_P(Lossless, EveryAnswerIsFullKvsAloneAndInMixedBatches) {
  if (entry().family == Family::verification) GTEST_SKIP() << "verifiers do not draft for each other";
  const auto full = make_method({{"name", "full"}}, "test");
  std::vector<Prefill> prompts;
  for (int i = 0; i < kPrompts; ++i) prompts.push_back(prompt(90 + 13 * i, /*seed=*/100 + i));
  static std::vector<Answer> expected;  // the same for every method, whatever it observes of the prompts
  if (expected.empty()) {
    for (const Prefill& prompt : prompts) expected.push_back(alone(prompt, *full));
  }
  for (const Answer& answer : expected) ASSERT_EQ(static_cast<int64_t>(answer.tokens.size()), kNewTokens);
  for (int index = 0; index < kSettings; ++index) {
    const json spec = {{"name", "vericache"}, {"draft_length", 3 + 6 * index}, {"drafter", setting(entry(), index)}};
    SCOPED_TRACE(spec.dump());
    const auto method = make_method(spec, "test");
    std::vector<std::unique_ptr<Noted>> batch;
    for (int i = 0; i < kPrompts; ++i) {
      EXPECT_EQ(alone(prompts[i], *method), expected[i]) << "prompt " << i << ", alone";
      batch.push_back(start(prompts[i], i % 5 == 4 ? *full : *method));
    }
    const std::vector<Answer> together = run(batch);
    for (int i = 0; i < kPrompts; ++i) EXPECT_EQ(together[i], expected[i]) << "prompt " << i << ", in a batch";
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Lossless, ::testing::ValuesIn(testing::method_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kvarena
