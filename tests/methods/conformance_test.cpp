// Requirements on every registered method, whatever its idea. A new method is covered by being registered.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/read_by_layers.h"
#include "harness/engine/session/selection_meter.h"
#include "harness/engine/session/session.h"
#include "harness/engine/stored/stored_prefill.h"
#include "harness/method/registry.h"
#include "harness/method/verifier.h"
#include "kernels/common/parallel.h"
#include "tests/support/decoding.h"
#include "tests/support/registered_method.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::active_settings;
using testing::Decoded;

/// Settings under which nothing may change; null for methods without a budget.
json full_budget_settings(const MethodEntry& entry) {
  json spec = active_settings(entry);
  for (const ParameterInfo& parameter : entry.parameters()) {
    if (entry.family != Family::reuse || parameter.name != "recompute") continue;
    spec["recompute"] = 1.0;
    return spec;
  }
  if (!spec.contains("keep")) return nullptr;
  spec["keep"] = 1.0;
  return spec;
}

/// The cache that a verifier's verifications attend to, alone: full KV unless it names another.
json verified_alone(const json& verifier) {
  const std::string cache = make_method(verifier, "test")->verifier()->verified_cache().settings();
  return cache.empty() ? json{{"name", "full"}} : json::parse(cache);
}

void expect_equal(const Decoded& some, const Decoded& others) {
  EXPECT_EQ(some.tokens, others.tokens);
  EXPECT_EQ(some.logits, others.logits);
}

class Conformance : public testing::RegisteredMethod {
 protected:
  [[nodiscard]] Decoded run(const Prefill& prompt, const json& spec, int64_t new_tokens = 24) {
    return testing::decode(model_, prompt, spec, new_tokens);
  }
  /// A question that the method has not seen follows the prompt.
  [[nodiscard]] Decoded ask(const Prefill& context, const json& spec, int64_t new_tokens = 24) {
    return testing::decode(model_, context, spec, new_tokens, {.question = testing::tiny_prompt(31, 77)});
  }
};

TEST_P(Conformance, DescribesItselfAndItsDefaultsAreValid) {
  EXPECT_TRUE(check_method(active_settings(entry()), "test").empty());
}

TEST_P(Conformance, ActsOnAPromptAboveItsBudgetAndSaysSo) {
  const Decoded decoded = run(prompt(400), active_settings(entry()));
  // An eviction policy acts on a store of many contexts; to one request it is full KV.
  const bool on_requests = entry().family != Family::reference && entry().family != Family::eviction;
  EXPECT_EQ(decoded.activity.acted(), on_requests);
}

TEST_P(Conformance, AFullBudgetChangesNothingBitForBit) {
  const json spec = full_budget_settings(entry());
  if (spec.is_null()) GTEST_SKIP() << GetParam() << " has no budget";
  const Prefill start = prompt(300);
  const Decoded full = run(start, {{"name", "full"}});
  const Decoded same = run(start, spec);
  expect_equal(same, full);
}

TEST_P(Conformance, APromptThatWasStoredAsItWasReadChangesNothingBitForBit) {
  if (is_hybrid()) GTEST_SKIP() << "layers with a state are not stored";
  const Prefill start = prompt(300);
  const json spec = active_settings(entry());
  const Needs needs = make_method(spec, "test")->asks();
  Prefill again = restore_prefill(model_, start.tokens, needs, start.model, store_prefill(model_, start));
  again.layout = start.layout;
  EXPECT_EQ(again.cache.bytes(), start.cache.bytes());
  const Decoded read = run(start, spec), restored = run(again, spec);
  expect_equal(restored, read);
  EXPECT_EQ(restored.resident_bytes, read.resident_bytes);
}

TEST_P(Conformance, ARetrieverWithABudgetOfEveryEntryChangesNothingBitForBit) {
  if (entry().family != Family::retrieval) GTEST_SKIP() << GetParam() << " does not retrieve";
  json spec = active_settings(entry());
  if (!spec.contains("keep")) GTEST_SKIP() << GetParam() << " has no budget";
  spec.erase("keep");
  spec["tokens"] = 324;  // the prompt and all that is generated
  const Prefill start = prompt(300);
  const Decoded full = run(start, {{"name", "full"}});
  const Decoded same = run(start, spec);
  expect_equal(same, full);
}

TEST_P(Conformance, TheSameRequestGivesTheSameBitsAgainAfterAnother) {
  const json spec = active_settings(entry());
  const Prefill b = prompt(330, 21);
  const Decoded alone = run(b, spec);
  const Prefill a = prompt(270, 20);
  (void)run(a, spec);
  const Decoded after = run(b, spec);
  expect_equal(after, alone);
  EXPECT_EQ(after.resident_bytes, alone.resident_bytes);
}

TEST_P(Conformance, AnyNumberOfThreadsGivesTheSameBits) {
  const Prefill start = prompt(600);
  const auto run_on = [&](int threads) {
    const kernels::ScopedThreads scope(threads);
    return run(start, active_settings(entry()), 8);
  };
  expect_equal(run_on(2), run_on(1));
}

TEST_P(Conformance, MixedLengthsInOneBatchEqualEachAlone) {
  const auto method = make_method(active_settings(entry()), "test");
  const std::vector<int64_t> lengths = {5, 130, 411};
  std::vector<Prefill> prompts;
  for (const int64_t n : lengths) prompts.push_back(prompt(n, static_cast<uint64_t>(n)));
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> running;
  for (const Prefill& start : prompts) {
    sessions.push_back(start_session(model_, start, *method, {.stop = {.max_new_tokens = 24}}));
    running.push_back(sessions.back().get());
  }
  run_together(model_, running);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(sessions[i]->tokens, run(prompts[i], active_settings(entry())).tokens) << lengths[i] << " tokens";
  }
}

TEST_P(Conformance, APromptShorterThanEveryWindowWorks) {
  for (const int64_t n : {1, 2, 3, 17}) {
    EXPECT_EQ(run(prompt(n), active_settings(entry()), 8).tokens.size(), 8U) << n << " tokens";
  }
}

TEST_P(Conformance, DroppingTakesAtMostOneLayerBesideTheFullCache) {
  if (entry().family != Family::compression) GTEST_SKIP() << GetParam() << " does not compress";
  const auto method = make_method(active_settings(entry()), "test");
  const Prefill start = prompt(700);
  Activity activity;
  const PromptState state = state_after_prompt(model_, start, *method, activity);
  if (activity.entries_packed > 0) GTEST_SKIP() << GetParam() << " stores codes or norms beside a layer";
  const int64_t full = start.cache.bytes();
  EXPECT_LE(state.cache.ledger->peak(Tier::device), full + full / 3 + 4096);
}

TEST_P(Conformance, ObservesLessOfThePromptThanTheCacheHolds) {
  const auto method = make_method(active_settings(entry()), "test");
  const Needs needs = method->needs();
  if (needs.hidden) GTEST_SKIP() << GetParam() << " reads hidden states";
  if (needs.window == kWholePrompt) GTEST_SKIP() << GetParam() << " reads all queries";
  const Prefill start = prompt(900);  // and again, for those that read it twice
  int64_t floats = 0;
  for (const LayerObservations& seen : start.observations) {
    floats += static_cast<int64_t>(seen.prompt_attention.size() + seen.window_queries.size() + seen.window_lse.size() +
                                   seen.future_attention.size());
    for (const GatheredStatistic& gathered : seen.statistics) floats += static_cast<int64_t>(gathered.sums.size());
    for (const ReconstructionScores& scores : seen.reconstructions)
      floats += static_cast<int64_t>(scores.scores.size());
  }
  EXPECT_LT(4 * floats, start.cache.bytes());
}

TEST_P(Conformance, LeavesThePromptOfOthersUntouched) {
  const Prefill start = prompt(200);
  const Decoded before = run(start, {{"name", "full"}});
  (void)run(start, active_settings(entry()));
  EXPECT_EQ(run(start, {{"name", "full"}}).logits, before.logits);
}

TEST_P(Conformance, APromptReadForItsSessionsAloneChangesNothingBitForBit) {
  const auto method = make_method(active_settings(entry()), "test");
  if (!outlives_full_cache(*method)) GTEST_SKIP() << GetParam() << " needs the full cache for longer";
  const Prefill start = prompt(600);
  const Decoded shared = run(start, active_settings(entry()));
  const Prefill own = read_for(model_, start.tokens, *method, 2, facts_, start.layout);
  for (const bool copied : {true, false}) {  // the second session takes the state itself
    const Decoded alone = testing::decode(model_, own, *method, 24);
    expect_equal(alone, shared);
    if (copied) {  // without the spare room of its vectors
      EXPECT_LE(alone.resident_bytes, shared.resident_bytes);
    } else {
      EXPECT_EQ(alone.resident_bytes, shared.resident_bytes);
    }
    EXPECT_EQ(alone.activity.entries_dropped, shared.activity.entries_dropped);
    EXPECT_EQ(alone.activity.entries_packed, shared.activity.entries_packed);
  }
}

TEST_P(Conformance, DraftsLosslesslyForAVerifier) {
  if (entry().family == Family::verification) GTEST_SKIP() << "verifiers do not draft for each other";
  const Prefill start = prompt(260);
  const Decoded full = run(start, {{"name", "full"}}, 60);
  const json spec = {{"name", "vericache"}, {"draft_length", 7}, {"drafter", active_settings(entry())}};
  const Decoded verified = run(start, spec, 60);
  expect_equal(verified, full);
}

TEST_P(Conformance, DraftsLosslesslyWhereItIsDraftedFor) {
  if (entry().family != Family::compression) GTEST_SKIP() << GetParam() << " does not compress";
  const Prefill start = prompt(260);
  const Decoded full = run(start, {{"name", "full"}}, 60);
  const json spec = {{"name", "vericache"},
                     {"draft_length", 4},
                     {"drafter", active_settings(entry())},
                     {"aux", {{"name", "ngram"}, {"draft_length", 3}}}};
  const Decoded verified = run(start, spec, 60);
  expect_equal(verified, full);
}

TEST_P(Conformance, VerifiersEmitWhatTheCacheTheyVerifyOnWould) {
  if (entry().family != Family::verification) GTEST_SKIP() << GetParam() << " does not verify";
  const Prefill start = prompt(260);
  const Decoded plain = run(start, verified_alone(active_settings(entry())), 60);
  const Decoded verified = run(start, active_settings(entry()), 60);
  expect_equal(verified, plain);
}

TEST_P(Conformance, AnswersAQuestionThatItHasNotSeenTheSameInABatch) {
  const auto method = make_method(active_settings(entry()), "test");
  const Prefill context = prompt(330, 21);
  const Decoded alone = ask(context, active_settings(entry()));
  EXPECT_EQ(alone.failure, "");
  EXPECT_EQ(alone.tokens.size(), 24U);
  const Prefill other = prompt(130, 22);
  std::vector<std::unique_ptr<Session>> sessions;
  sessions.push_back(start_session(model_, other, *method, {.stop = {.max_new_tokens = 12}}));
  sessions.push_back(start_session(model_, context, *method,
                                   {.stop = {.max_new_tokens = 24}, .question = testing::tiny_prompt(31, 77)}));
  Session* const running[] = {sessions[0].get(), sessions[1].get()};
  run_together(model_, running);
  EXPECT_EQ(sessions[1]->tokens, alone.tokens);
}

TEST_P(Conformance, AFullBudgetAnswersAQuestionThatItHasNotSeenAsFullKv) {
  const json spec = full_budget_settings(entry());
  if (spec.is_null()) GTEST_SKIP() << GetParam() << " has no budget";
  const Prefill context = prompt(300);
  const Decoded full = ask(context, {{"name", "full"}});
  const Decoded same = ask(context, spec);
  expect_equal(same, full);
}

TEST_P(Conformance, StaysLosslessThroughAQuestionThatItHasNotSeen) {
  const bool verifies = entry().family == Family::verification;
  const json spec = verifies ? active_settings(entry())
                             : json{{"name", "vericache"}, {"draft_length", 7}, {"drafter", active_settings(entry())}};
  const Prefill context = prompt(260);
  const Decoded plain = ask(context, verified_alone(spec), 60);
  const Decoded verified = ask(context, spec, 60);
  expect_equal(verified, plain);
}

TEST_P(Conformance, AnswersEachQuestionAboutOneCompressedContextAsIfItWereTheOnlyOne) {
  const json spec = active_settings(entry());
  const auto method = make_method(spec, "test");
  Prefill context = prompt(330, 21);
  context.compressed = std::make_shared<CompressedPrompts>();
  const std::vector<int32_t> first = testing::tiny_prompt(31, 77), second = testing::tiny_prompt(17, 78);
  std::vector<int32_t> turn = first;  // and its answer, and what is asked then
  for (const std::vector<int32_t>& more : {testing::tiny_prompt(9, 79), second}) {
    turn.insert(turn.end(), more.begin(), more.end());
  }
  size_t compressed = 0;
  for (const std::vector<int32_t>& question : {first, second, turn}) {
    Decoded shared;
    const auto session = testing::start_noted(model_, context, *method, shared.logits,
                                              {.stop = {.max_new_tokens = 24}, .question = question});
    if (compressed == 0) compressed = context.compressed->by_method.size();
    Session* const one[] = {session.get()};
    run_together(model_, one);
    const Decoded alone = testing::decode(model_, prompt(330, 21), spec, 24, {.question = question});
    Prefill other = prompt(330, 21);
    other.compressed = std::make_shared<CompressedPrompts>();
    const Decoded only = testing::decode(model_, other, spec, 24, {.question = question});
    EXPECT_EQ(session->failure, "");
    EXPECT_EQ(session->tokens, alone.tokens);
    EXPECT_EQ(shared.logits, alone.logits);
    EXPECT_EQ(session->resident_bytes, only.resident_bytes);  // a copy has no room to grow that the first one had
    EXPECT_EQ(session->activity.acted(), alone.activity.acted());
    EXPECT_EQ(session->activity.entries_dropped, alone.activity.entries_dropped);
    EXPECT_EQ(session->activity.entries_packed, alone.activity.entries_packed);
    EXPECT_EQ(session->activity.tokens_reused, alone.activity.tokens_reused);
  }
  EXPECT_EQ(context.compressed->by_method.size(), compressed) << "a later question was compressed for";
}

TEST_P(Conformance, AnswersAgainFromWhereItDepartedWithoutCountingThat) {
  const auto method = make_method(active_settings(entry()), "test");
  const Prefill context = prompt(330, 21);
  Activity activity;
  const KvCache begun = state_after_prompt(model_, context, *method, activity).cache;
  const bool indexed =
      begun.index || std::ranges::any_of(begun.layers, [](const auto& layer) { return layer.index != nullptr; });
  for (const std::vector<int32_t>& question : {testing::tiny_prompt(31, 77), std::vector<int32_t>{}}) {
    SelectionMeter meter(context.cache), other_meter(context.cache), forced_meter(context.cache);
    const Decoded once = testing::decode(model_, context, *method, 24, {.question = question, .meter = &other_meter});
    const std::ptrdiff_t departs = question.empty() ? 0 : 9;
    std::vector<int32_t> other = testing::tiny_prompt(24, 5);
    std::copy_n(once.tokens.begin(), departs, other.begin());
    other[departs] = once.tokens[departs] == 7 ? 8 : 7;
    testing::Logits logits;
    const auto session = testing::start_noted(
        model_, context, *method, logits,
        {.stop = {.max_new_tokens = 24}, .question = question, .meter = &meter, .departs_from = &other});
    Session* const one[] = {session.get()};
    run_together(model_, one);
    EXPECT_EQ(session->tokens, once.tokens);
    EXPECT_EQ(logits, once.logits);
    EXPECT_EQ(session->resident_bytes, once.resident_bytes);
    EXPECT_EQ(session->peak_host_bytes, once.peak_host_bytes);
    EXPECT_TRUE(session->tier_bytes == once.tier_bytes);

    logits.clear();
    SessionOptions forced{.forced = other, .question = question, .meter = &meter};
    forced.on_logits = [&](int64_t, std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); };
    const bool can = method->verifier() == nullptr && !method->looks_ahead() && method->cannot_draft().empty();
    const bool again = session->answer_again(forced);
    if (!can || !indexed) {
      ASSERT_EQ(again, can);
    }
    if (!again) continue;
    run_together(model_, one);
    forced.meter = &forced_meter;
    const Decoded alone = testing::decode(model_, context, *method, 24, forced);
    EXPECT_EQ(session->tokens, alone.tokens);
    EXPECT_EQ(logits, testing::Logits(alone.logits.begin() + departs, alone.logits.end()));
    EXPECT_EQ(meter.layer_hit_rates(), forced_meter.layer_hit_rates());
    EXPECT_FALSE(session->answer_again(forced)) << "it goes back once";
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Conformance, ::testing::ValuesIn(testing::method_names()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(SlidingLayers, Conformance, ::testing::ValuesIn(testing::method_names_on(testing::kSliding)),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(RecurrentLayers, Conformance, ::testing::ValuesIn(testing::method_names_on(testing::kHybrid)),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kvarena
