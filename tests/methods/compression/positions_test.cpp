// Positions inside the cache against the authors' rule and kvpress (tests/golden/streaming_positions.py).

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/core/files.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/observe.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;

constexpr TransformerOptions kExact{.weights = kernels::DType::f32, .cache = kernels::DType::f32};

/// Every eighth logit after each forced token.
std::vector<std::vector<float>> forced_logits(Transformer& model, const Prefill& start, const Method& method,
                                              const std::vector<int32_t>& forced) {
  Activity activity;
  KvCache cache = compress_prompt(start, method, activity);
  MethodHooks hooks(method, activity, static_cast<int64_t>(start.tokens.size()), start.model.get());
  std::vector<std::vector<float>> steps;
  for (const int32_t token : forced) {
    const SequencePass pass{.tokens = {&token, 1}, .cache = &cache, .hooks = &hooks};
    const std::span<const float> logits = model.forward({&pass, 1});
    steps.emplace_back();
    for (size_t i = 0; i < logits.size(); i += 8) steps.back().push_back(logits[i]);
  }
  return steps;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
  return largest;
}

TEST(RenumberedPositions, GiveTheLogitsOfTheAuthorsAndOfKvpress) {
  Transformer model = testing::tiny_model(1, kExact);
  const json golden = json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/streaming_positions.json"));
  int64_t compared = 0;
  for (const json& prompt : golden["prompts"]) {
    const auto forced = prompt["forced"].get<std::vector<int32_t>>();
    for (json one : prompt["cases"]) {
      SCOPED_TRACE(one["spec"].dump());
      const auto method = make_method(one["spec"], "golden");
      const Prefill start = prefill(model, prompt["tokens"].get<std::vector<int32_t>>(), method->needs());
      const auto logits = forced_logits(model, start, *method, forced);
      one["spec"]["positions"] = "orig";
      const auto unmoved = forced_logits(model, start, *make_method(one["spec"], "golden"), forced);
      double moved = 0;
      for (const auto& [step, expected] : one["steps"].items()) {
        const size_t at = std::stoul(step);
        EXPECT_LT(distance(logits[at], expected.get<std::vector<float>>()), 2e-3) << "step " << step;
        moved = std::max(moved, distance(unmoved[at], expected.get<std::vector<float>>()));
        ++compared;
      }
      EXPECT_GT(moved, 1e-2);  // positions matter
    }
  }
  EXPECT_EQ(compared, 5 * 6 * 4);
}

TEST(RenumberedPositions, RoundAKeyOnceHoweverOftenItIsTurned) {
  Transformer model = testing::tiny_model();  // bf16 entries
  const auto method =
      make_method({{"name", "streaming_llm"}, {"positions", "renumber"}, {"sinks", 3}, {"tokens", 20}}, "test");
  const Prefill start = prefill(model, testing::tiny_prompt(50), method->needs());
  Activity activity;
  KvCache cache = compress_prompt(start, *method, activity);
  MethodHooks hooks(*method, activity, 50, start.model.get());
  for (int32_t token = 0; token < 90; ++token) {
    const SequencePass pass{.tokens = {&token, 1}, .cache = &cache, .hooks = &hooks, .logits = LogitsRows::none};
    (void)model.forward({&pass, 1});
  }
  const double move = 50 + 90 - 20;  // entries that have left
  for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
    const EntrySegment& tail = cache.layers[layer].tail();
    const int64_t d = tail.shape().head_dim;
    std::vector<float> before(static_cast<size_t>(50 * d));
    std::vector<float> now(static_cast<size_t>(20 * d));
    for (int64_t head = 0; head < 2; ++head) {
      EXPECT_EQ(tail.position(head, 2), 2);
      start.cache.layers[layer].tail().read(head, before.data(), nullptr);
      tail.read(head, now.data(), nullptr);
      for (int64_t i = 0; i < 3; ++i) {
        for (int64_t c = 0; c < d / 2; ++c) {
          const double angle = move * start.model->rotation.inverse[c];
          const double a = before[i * d + c];
          const double b = before[i * d + c + d / 2];
          const double size = std::hypot(a, b);
          EXPECT_NEAR(now[i * d + c], a * std::cos(angle) - b * std::sin(angle), size / 256) << layer << " " << c;
          EXPECT_NEAR(now[i * d + c + d / 2], b * std::cos(angle) + a * std::sin(angle), size / 256);
        }
      }
    }
  }
  EXPECT_EQ(cache.bytes(), cache.ledger->current(Tier::device));
}

TEST(RenumberedPositions, DraftForAVerifierAndServeHeadsOfUnequalBudgets) {
  Transformer model = testing::tiny_model();
  const json drafter = {
      {"name", "h2o"}, {"keep", 0.3}, {"positions", "renumber"}, {"budget_rule", {{"name", "heads"}}}};
  const json spec = {{"name", "vericache"}, {"draft_length", 5}, {"drafter", drafter}};
  const auto verified = make_method(spec, "test");
  const Method full;
  Needs needs = make_method(drafter, "test")->needs();
  const Prefill start = prefill(model, testing::tiny_prompt(120), combine(needs, verified->needs()));
  std::vector<std::vector<int32_t>> answers;
  for (const Method* method : {&full, static_cast<const Method*>(verified.get())}) {
    const auto session = start_session(model, start, *method, {.stop = {.max_new_tokens = 40}});
    Session* const sessions[] = {session.get()};
    run_together(model, sessions);
    answers.push_back(session->tokens);
  }
  EXPECT_EQ(answers[0], answers[1]);
}

}  // namespace
}  // namespace kvarena
