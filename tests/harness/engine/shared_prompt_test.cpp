// Bytes that the process holds of a prompt's cache and of those made of it, exactly.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/engine/model_facts.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/read_by_layers.h"
#include "harness/engine/session/request_bytes.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "tests/support/random_entries.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::tiny_model;
using testing::tiny_prompt;

constexpr int64_t kPrompt = 700;

class SharedPrompts : public ::testing::Test {
 protected:
  SharedPrompts() : model_(tiny_model()), facts_(model_facts(model_)), before_(process_.current(Tier::device)) {}

  /// Bytes of the device that caches hold, and the most since the last restart_peaks().
  [[nodiscard]] int64_t held() const { return process_.current(Tier::device) - before_; }
  [[nodiscard]] int64_t peak() const { return process_.peak(Tier::device) - before_; }

  std::unique_ptr<Session> start(const Prefill& prompt, const Method& method) {
    return start_session(model_, prompt, method, {.stop = {.max_new_tokens = 20}});
  }
  void run(Session& session) {
    Session* const one[] = {&session};
    run_together(model_, one);
    ASSERT_EQ(session.failure, "");
  }
  /// The most that one layer of the prompt takes while it is computed and compressed.
  [[nodiscard]] int64_t layer_peak(const Method& method) const {
    const std::vector<int32_t> tokens = tiny_prompt(kPrompt);
    KvCache cache(1, model_.layer_shape(0));
    const auto rows = testing::random_floats(512 * 64, "rows");
    for (int64_t n = 0; n < kPrompt; n += 512)
      cache.layers[0].append(rows.data(), rows.data(), std::min<int64_t>(512, kPrompt - n), 64, n);
    Activity activity;
    LayerContext context{.layer = 0,
                         .layers = 3,
                         .cache = cache.layers[0],
                         .activity = activity,
                         .prompt_tokens = kPrompt,
                         .model = facts_.get(),
                         .prompt = tokens,
                         .request = &cache};
    const LayerObservations seen{.entries = kPrompt};
    method.compress_all({&context, 1}, {&seen, 1});
    return cache.ledger->peak(Tier::device);
  }

  Transformer model_;
  std::shared_ptr<const ModelFacts> facts_;
  MemoryLedger& process_ = MemoryLedger::process();
  int64_t before_;
};

TEST_F(SharedPrompts, SessionsThatOnlyReadHoldNothingMore) {
  const auto full = make_method({{"name", "full"}}, "test");
  const Prefill prompt = prefill(model_, tiny_prompt(kPrompt), {}, kPrefillChunk, facts_);
  const int64_t bytes = prompt.cache.bytes();
  process_.restart_peaks();
  const auto a = start(prompt, *full), b = start(prompt, *full);
  EXPECT_EQ(peak(), bytes);
  EXPECT_EQ(a->held_bytes(), bytes);
  EXPECT_EQ(a->resident_bytes, bytes);
  a->stop_sharing();
  EXPECT_EQ(held(), 2 * bytes);
  run(*b);
  EXPECT_EQ(held(), 2 * bytes + b->held_bytes());
}

/// The prompt's cache is the verifier's too, and the drafter's until it drops entries: 1 + c full caches and the
/// positions of one head, of which the drafter keeps a part.
TEST_F(SharedPrompts, AVerifierStartsWithoutASecondFullCache) {
  const auto method = make_method({{"name", "vericache"}, {"drafter", {{"name", "knorm"}, {"keep", 0.25}}}}, "test");
  std::unique_ptr<Session> session;
  int64_t bytes = 0;
  {
    const Prefill prompt = prefill(model_, tiny_prompt(kPrompt), method->needs(), kPrefillChunk, facts_);
    bytes = prompt.cache.bytes();
    process_.restart_peaks();
    session = start(prompt, *method);
    EXPECT_EQ(held(), session->held_bytes());
    EXPECT_EQ(peak(), session->held_bytes() + kPrompt * 4);
  }
  EXPECT_EQ(held(), session->held_bytes());
  EXPECT_LT(session->held_bytes(), bytes * 13 / 10);
  run(*session);
  EXPECT_EQ(held(), session->held_bytes());
  session.reset();
  EXPECT_EQ(held(), 0);
}

/// Beside what is left of the other layers, one is held at its largest.
TEST_F(SharedPrompts, APromptIsCompressedLayerByLayerWhileItIsRead) {
  const json copy = {{"name", "kivi"}, {"bits", 1}, {"group_size", 32}, {"residual_length", 64}};
  for (const json& spec : {json{{"name", "specache"}, {"k", 16}, {"copy", copy}}, json{{"name", "kivi"}, {"bits", 2}},
                           json{{"name", "knorm"}, {"keep", 0.25}}}) {
    SCOPED_TRACE(spec.dump());
    const auto method = make_method(spec, "test");
    const int64_t layer = layer_peak(*method);
    std::unique_ptr<Session> session;
    process_.restart_peaks();
    {
      const Prefill prompt = read_for(model_, tiny_prompt(kPrompt), *method, 1, facts_);
      const int64_t result = held();
      EXPECT_EQ(result % 3, 0);
      EXPECT_EQ(peak(), result / 3 * 2 + layer);
      EXPECT_LT(peak(), full_cache_bytes(model_, kPrompt));
      session = start(prompt, *method);
      EXPECT_EQ(held(), result);  // the state itself, no copy
      EXPECT_GT(session->compress_seconds, 0);
    }
    run(*session);
    EXPECT_GE(session->peak_bytes, layer);
    session.reset();
    EXPECT_EQ(held(), 0);
  }
}

TEST_F(SharedPrompts, TheLastSessionTakesTheStateAndOthersCopies) {
  const auto method = make_method({{"name", "knorm"}, {"keep", 0.25}}, "test");
  std::vector<std::unique_ptr<Session>> sessions;
  {
    Prefill prompt = prefill(model_, tiny_prompt(kPrompt), {}, kPrefillChunk, facts_);
    const int64_t full = prompt.cache.bytes();
    compress_in_place(prompt, *method, 3);
    const int64_t result = held();
    EXPECT_LT(result, full / 3);
    for (int i = 0; i < 3; ++i) sessions.push_back(start(prompt, *method));
    EXPECT_LT(held(), 2 * result);  // positions are copied, entries are not
    EXPECT_EQ(sessions[0]->held_bytes(), result);
  }
  for (const auto& session : sessions) run(*session);
  EXPECT_EQ(sessions[0]->tokens, sessions[2]->tokens);
  EXPECT_EQ(held(), 3 * sessions[0]->held_bytes());
}

}  // namespace
}  // namespace kvarena
