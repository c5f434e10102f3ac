// Guarantees of every session, on a small random model.

#include "harness/engine/session/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/method/registry.h"
#include "tests/support/decoding.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::decode;
using testing::Decoded;
using testing::tiny_model;
using testing::tiny_prompt;

const Needs kEverything{.prompt_attention = true, .window = 64, .step_attention = true, .hidden = true};

TEST(Prefill, DoesNotDependOnItsChunks) {
  Transformer model = tiny_model();
  const auto tokens = tiny_prompt(150);
  const Prefill whole = prefill(model, tokens, kEverything, 1000);
  for (const int64_t chunk : {1, 7, 64, 149}) {
    const Prefill cut = prefill(model, tokens, kEverything, chunk);
    EXPECT_EQ(cut.logits, whole.logits) << "chunk " << chunk;
    for (size_t layer = 0; layer < whole.observations.size(); ++layer) {
      EXPECT_EQ(cut.observations[layer].window_queries, whole.observations[layer].window_queries);
      EXPECT_EQ(cut.observations[layer].window_lse, whole.observations[layer].window_lse);
      EXPECT_EQ(cut.observations[layer].hidden, whole.observations[layer].hidden);
    }
  }
}

TEST(Prefill, ObservedAttentionOfEachQuerySumsToOne) {
  Transformer model = tiny_model();
  const int64_t n = 90;
  const Prefill prompt = prefill(model, tiny_prompt(n), kEverything);
  for (const LayerObservations& seen : prompt.observations) {
    for (int64_t head = 0; head < 4; ++head) {
      double total = 0;
      for (int64_t i = 0; i < n; ++i) total += seen.prompt_attention[head * n + i];
      EXPECT_NEAR(total, static_cast<double>(n), 1e-3);
    }
  }
}

TEST(Prefill, RefusesAPromptBeyondTheWindow) {
  Transformer model = tiny_model();
  EXPECT_THROW((void)prefill(model, tiny_prompt(2049), {}), UserError);
  EXPECT_THROW((void)prefill(model, {}, {}), UserError);
}

TEST(Session, StepByStepEqualsOnePassOverTheWholeSequence) {
  Transformer model = tiny_model();
  const Prefill prompt = prefill(model, tiny_prompt(60), {});
  const Decoded full = decode(model, prompt, {{"name", "full"}}, 20);

  std::vector<int32_t> all = prompt.tokens;
  all.insert(all.end(), full.tokens.begin(), full.tokens.end());
  KvCache cache = model.make_cache();
  const SequencePass pass{.tokens = all, .cache = &cache, .hooks = nullptr, .logits = LogitsRows::all};
  const std::span<const float> rows = model.forward({&pass, 1});
  for (size_t step = 0; step < full.tokens.size(); ++step) {
    const auto row = rows.subspan((prompt.tokens.size() - 1 + step) * 128, 128);
    EXPECT_EQ(full.logits[step], std::vector<float>(row.begin(), row.end())) << "step " << step;
  }
}

TEST(Session, SharingAPassChangesNothing) {
  Transformer model = tiny_model();
  const Prefill a = prefill(model, tiny_prompt(100, 1), kEverything);
  const Prefill b = prefill(model, tiny_prompt(37, 2), kEverything);
  const std::vector<json> specs = {
      {{"name", "full"}},
      {{"name", "streaming_llm"}, {"keep", 0.3}},
      {{"name", "snapkv"}, {"keep", 0.5}, {"window", 8}},
      {{"name", "h2o"}, {"keep", 0.25}},
      {{"name", "vericache"}, {"draft_length", 5}, {"drafter", {{"name", "h2o"}, {"keep", 0.4}}}}};
  std::vector<std::unique_ptr<Method>> methods;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> running;
  for (const json& spec : specs) methods.push_back(make_method(spec, "test"));
  for (const Prefill* prompt : {&a, &b}) {
    for (const auto& method : methods) {
      sessions.push_back(start_session(model, *prompt, *method, {.stop = {.max_new_tokens = 30}}));
      running.push_back(sessions.back().get());
    }
  }
  run_together(model, running);
  for (size_t i = 0; i < sessions.size(); ++i) {
    const Prefill& prompt = i < specs.size() ? a : b;
    EXPECT_EQ(sessions[i]->tokens, decode(model, prompt, specs[i % specs.size()], 30).tokens)
        << specs[i % specs.size()];
  }
}

/// Throws in its second layer, in every pass.
class Throwing final : public Method {
 public:
  void select(LayerContext& layer, const LayerQueries& /*queries*/) const override {
    if (layer.layer == 1) throw std::runtime_error("broke while selecting");
  }
};

TEST(Session, WhatOneThrowsInASharedPassEndsItAlone) {
  Transformer model = tiny_model();
  const Prefill prompt = prefill(model, tiny_prompt(60), {});
  const Method full;
  const Throwing throws;
  std::vector<std::unique_ptr<Session>> sessions;
  sessions.push_back(start_session(model, prompt, throws, {.stop = {.max_new_tokens = 20}}));
  sessions.push_back(start_session(model, prompt, full, {.stop = {.max_new_tokens = 20}}));
  sessions.push_back(start_session(model, prompt, full, {.stop = {.stop_when = [](std::span<const int32_t> tokens) {
                                                           if (tokens.size() == 3) throw std::runtime_error("");
                                                           return false;
                                                         }}}));
  std::vector<Session*> running;
  for (const auto& session : sessions) running.push_back(session.get());
  run_together(model, running);
  EXPECT_EQ(sessions[0]->failure, "broke while selecting");
  EXPECT_EQ(sessions[0]->finish, FinishReason::failed);
  EXPECT_EQ(sessions[0]->tokens.size(), 1U);
  EXPECT_EQ(sessions[1]->failure, "");
  EXPECT_EQ(sessions[1]->tokens, decode(model, prompt, {{"name", "full"}}, 20).tokens);
  EXPECT_EQ(sessions[2]->failure, "an exception without a message");
}

TEST(Session, StopsAtAStopTokenAndReportsIt) {
  Transformer model = tiny_model();
  const Prefill prompt = prefill(model, tiny_prompt(50), {});
  const Decoded free_running = decode(model, prompt, {{"name", "full"}}, 20);
  const int32_t stop = free_running.tokens[7];
  const auto first = std::ranges::find(free_running.tokens, stop) - free_running.tokens.begin();
  const Decoded stopped = decode(model, prompt, {{"name", "full"}}, 20, {.stop = {.stop_tokens = {stop}}});
  EXPECT_EQ(static_cast<int64_t>(stopped.tokens.size()), first + 1);
  EXPECT_EQ(stopped.tokens.back(), stop);
}

TEST(Session, TeacherForcingFeedsTheGivenTokens) {
  Transformer model = tiny_model();
  const Prefill prompt = prefill(model, tiny_prompt(50), {});
  const Decoded reference = decode(model, prompt, {{"name", "full"}}, 12);
  const Decoded forced = decode(model, prompt, {{"name", "full"}}, 99, {.forced = reference.tokens});
  EXPECT_EQ(forced.tokens, reference.tokens);
  EXPECT_EQ(forced.logits, reference.logits);
}

TEST(Session, GivenTokensHaveTheSameLogitsHoweverManyAPassFeeds) {
  Transformer model = tiny_model();
  const Prefill prompt = prefill(model, tiny_prompt(120), kEverything);
  const std::vector<int32_t> given = decode(model, prompt, {{"name", "full"}}, 23).tokens;
  const std::vector<int32_t> question = tiny_prompt(7);
  for (const json& spec : {json{{"name", "full"}}, json{{"name", "snapkv"}, {"keep", 0.3}, {"window", 8}},
                           json{{"name", "knorm"}, {"keep", 0.3}}, json{{"name", "tova"}, {"keep", 0.3}},
                           json{{"name", "kivi"}, {"bits", 2}, {"group_size", 16}, {"residual_length", 16}},
                           json{{"name", "quest"}, {"keep", 0.3}}}) {
    for (const auto& asked : {std::vector<int32_t>(), question}) {
      const auto along = [&](int64_t piece) {
        return decode(model, prompt, spec, 99,
                      {.forced = given, .after_forced = 4, .forced_piece = piece, .question = asked});
      };
      const Decoded one = along(1), some = along(5), all = along(99);
      ASSERT_EQ(std::ssize(one.tokens), 27);
      EXPECT_EQ(some.tokens, one.tokens) << spec;
      EXPECT_EQ(all.tokens, one.tokens) << spec;
      EXPECT_EQ(some.logits, one.logits) << spec;
      EXPECT_EQ(all.logits, one.logits) << spec;
    }
  }
}

TEST(Session, ItDoesNotAnswerAgainWhereItDidNotDepart) {
  Transformer model = tiny_model();
  const Prefill prompt = prefill(model, tiny_prompt(50), {});
  const auto method = make_method({{"name", "full"}}, "test");
  const std::vector<int32_t> answer = decode(model, prompt, *method, 9).tokens;
  const auto session = start_session(model, prompt, *method, {.stop = {.max_new_tokens = 9}, .departs_from = &answer});
  run_together(model, std::array{session.get()});
  EXPECT_FALSE(session->answer_again({.forced = answer}));
  EXPECT_EQ(session->tokens, answer);
}

TEST(Verification, EqualsFullKvBitForBitWhateverDrafts) {
  Transformer model = tiny_model();
  const Prefill prompt = prefill(model, tiny_prompt(120), kEverything);
  const Decoded full = decode(model, prompt, {{"name", "full"}}, 60);
  const std::vector<json> drafters = {{{"name", "full"}},
                                      {{"name", "streaming_llm"}, {"keep", 0.1}},
                                      {{"name", "snapkv"}, {"keep", 0.3}, {"window", 8}},
                                      {{"name", "h2o"}, {"keep", 0.2}}};
  for (const json& drafter : drafters) {
    for (const int64_t length : {1, 4, 25}) {
      const Decoded verified =
          decode(model, prompt, {{"name", "vericache"}, {"draft_length", length}, {"drafter", drafter}}, 60);
      EXPECT_EQ(verified.tokens, full.tokens) << drafter << " x=" << length;
      EXPECT_EQ(verified.logits, full.logits) << drafter << " x=" << length;
    }
  }
}

TEST(Verification, APerfectDrafterIsAlwaysAccepted) {
  Transformer model = tiny_model();
  const Prefill prompt = prefill(model, tiny_prompt(80), {});
  const Decoded verified =
      decode(model, prompt, {{"name", "vericache"}, {"draft_length", 6}, {"drafter", {{"name", "full"}}}}, 50);
  EXPECT_EQ(verified.activity.tokens_accepted, verified.activity.tokens_drafted);
  int64_t emitted = 1;  // the prompt's own token
  for (const VerifyRound& round : verified.rounds) {
    EXPECT_EQ(round.accepted, round.drafted);
    emitted += round.emitted;
  }
  EXPECT_EQ(emitted, static_cast<int64_t>(verified.tokens.size()));
}

TEST(Verification, IsLosslessWhenSampling) {
  Transformer model = tiny_model();
  const Prefill prompt = prefill(model, tiny_prompt(80), kEverything);
  const SessionOptions hot{.sampling = {.temperature = 0.8, .seed = 11}};
  const Decoded full = decode(model, prompt, {{"name", "full"}}, 40, hot);
  const json spec = {
      {"name", "vericache"}, {"draft_length", 5}, {"drafter", {{"name", "snapkv"}, {"keep", 0.5}, {"window", 8}}}};
  EXPECT_EQ(decode(model, prompt, spec, 40, hot).tokens, full.tokens);
}

}  // namespace
}  // namespace kvarena
