// Requirements on all dropping methods on random prompts.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/observe.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;

/// The dropping methods that take a budget, with settings under which they meet it exactly.
std::vector<json> budgeted_methods() {
  std::vector<json> specs;
  for (const MethodEntry& entry : method_registry()) {
    const auto parameters = entry.parameters();
    const auto has = [&](const char* name) {
      return std::ranges::find(parameters, name, &ParameterInfo::name) != parameters.end();
    };
    if (!has("budget_rule")) continue;
    if (has("weights") && !has("statistics")) continue;  // needs fitted weights: conformance_test fits some
    json spec = {{"name", entry.info.name}};
    if (has("partial")) spec["partial"] = true;
    specs.push_back(std::move(spec));
  }
  return specs;
}

int64_t held(const LayerCache& layer) {
  int64_t total = 0;
  for (int64_t head = 0; head < layer.shape().kv_heads; ++head) total += layer.entries(head);
  return total;
}

TEST(EveryDroppingMethod, MeetsItsBudgetUnderEveryRule) {
  Transformer model = testing::tiny_model();
  Needs needs;
  for (const json& spec : budgeted_methods()) {
    json with_budget = spec;
    with_budget["keep"] = 0.5;
    needs = combine(needs, make_method(with_budget, "test")->needs());
  }
  for (const int64_t n : {37, 150}) {
    const Prefill start = prefill(model, testing::tiny_prompt(n, static_cast<uint64_t>(n)), needs);
    for (json spec : budgeted_methods()) {
      for (const double keep : {0.1, 0.5}) {
        const auto capacity = static_cast<int64_t>(std::floor(keep * static_cast<double>(n)));
        for (const json& rule : {json{{"name", "uniform"}}, json{{"name", "heads"}}, json{{"name", "global"}},
                                 json{{"name", "layers"}, {"shares", {1.0, 1.0, 1.0}}}}) {
          spec["keep"] = keep;
          spec["budget_rule"] = rule;
          const bool global = rule["name"].get<std::string>() == "global";
          SCOPED_TRACE(spec.dump());
          Activity activity;
          const auto method = make_method(spec, "test");
          const KvCache cache = compress_prompt(start, *method, activity);
          int64_t total = 0;
          for (const LayerCache& layer : cache.layers) {
            total += held(layer);
            if (!global) {
              EXPECT_EQ(held(layer), 2 * capacity);
            }
          }
          // All heads of all layers together drop int(entries (1 - keep)), as kvpress's KVzipPress does.
          const auto all = static_cast<double>(3 * 2 * n);
          const int64_t left = global ? 3 * 2 * n - static_cast<int64_t>(all * (1 - keep) + 1e-9) : 3 * 2 * capacity;
          EXPECT_EQ(total, left);
          EXPECT_EQ(activity.entries_dropped, 3 * 2 * n - left);
          // At most one layer beside the full cache, unless the rule must see all layers' scores first.
          const int64_t most = start.cache.bytes() + start.cache.bytes() / 3 + 4096;
          if (!global) {
            EXPECT_LE(cache.ledger->peak(Tier::device), most);
          }
        }
      }
    }
  }
}

TEST(EveryDroppingMethod, KeepsWhatTheUserProtectsWithinTheBudget) {
  Transformer model = testing::tiny_model();
  constexpr int64_t kTokens = 120, kCapacity = 30, kSinks = 5, kWindow = 9;
  Needs needs;
  std::vector<json> specs = budgeted_methods();
  for (json& spec : specs) {
    spec.update({{"tokens", kCapacity}, {"protect_sinks", kSinks}, {"protect_window", kWindow}});
    needs = combine(needs, make_method(spec, "test")->needs());
  }
  const Prefill start = prefill(model, testing::tiny_prompt(kTokens, 3), needs);
  for (const json& spec : specs) {
    for (const char* rule : {"uniform", "heads", "global"}) {
      json with_rule = spec;
      with_rule["budget_rule"] = {{"name", rule}};
      SCOPED_TRACE(with_rule.dump());
      Activity activity;
      const KvCache cache = compress_prompt(start, *make_method(with_rule, "test"), activity);
      int64_t total = 0;
      for (const LayerCache& layer : cache.layers) {
        total += held(layer);
        for (int64_t head = 0; head < layer.shape().kv_heads; ++head) {
          const std::vector<int32_t> kept = layer.tail().positions(head);
          ASSERT_GE(std::ssize(kept), kSinks + kWindow);
          EXPECT_EQ(kept[kSinks - 1], kSinks - 1);
          EXPECT_EQ(kept[kept.size() - kWindow], kTokens - kWindow);
        }
      }
      EXPECT_EQ(total, 3 * 2 * kCapacity);
    }
  }
}

TEST(EveryDroppingMethod, StaysWithinItsHeadsBudgetsWhileDecoding) {
  Transformer model = testing::tiny_model();
  for (json spec : budgeted_methods()) {
    for (const char* rule : {"uniform", "heads"}) {
      spec["keep"] = 0.3;
      spec["budget_rule"] = {{"name", rule}};
      SCOPED_TRACE(spec.dump());
      const auto method = make_method(spec, "test");
      const Prefill start = prefill(model, testing::tiny_prompt(90), method->needs());
      Activity activity;
      KvCache cache = compress_prompt(start, *method, activity);
      std::vector<int64_t> after_prompt;
      for (const LayerCache& layer : cache.layers) after_prompt.push_back(held(layer));
      MethodHooks hooks(*method, activity, 90, start.model.get());
      for (int32_t token = 0; token < 12; ++token) {
        const SequencePass pass{.tokens = {&token, 1}, .cache = &cache, .hooks = &hooks, .logits = LogitsRows::none};
        (void)model.forward({&pass, 1});
      }
      bool grew = true;
      bool kept = true;
      for (size_t layer = 0; layer < 3; ++layer) {
        grew = grew && held(cache.layers[layer]) == after_prompt[layer] + 2 * 12;
        kept = kept && held(cache.layers[layer]) <= after_prompt[layer];
      }
      EXPECT_TRUE(grew || kept);  // decoding keeps everything, or evicts to the budget
    }
  }
}

TEST(EveryDroppingMethod, DoesNotMindTheOrderOfABatch) {
  Transformer model = testing::tiny_model();
  for (json spec : budgeted_methods()) {
    spec["keep"] = 0.4;
    spec["budget_rule"] = {{"name", "heads"}};
    SCOPED_TRACE(spec.dump());
    const auto method = make_method(spec, "test");
    std::vector<Prefill> prompts;
    for (const int64_t n : {40, 75}) prompts.push_back(prefill(model, testing::tiny_prompt(n), method->needs()));
    std::vector<std::vector<std::vector<int32_t>>> answers;
    for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1}, std::vector<size_t>{1, 0}}) {
      std::vector<std::unique_ptr<Session>> sessions(2);
      std::vector<Session*> running;
      for (const size_t i : order) {
        sessions[i] = start_session(model, prompts[i], *method, {.stop = {.max_new_tokens = 10}});
        running.push_back(sessions[i].get());
      }
      run_together(model, running);
      answers.push_back({sessions[0]->tokens, sessions[1]->tokens});
    }
    EXPECT_EQ(answers[0], answers[1]);
  }
}

TEST(DroppingOptions, SayWhatDoesNotGoTogether) {
  const auto problems = [](const json& more) {
    json spec = {{"name", "knorm"}, {"keep", 0.5}};
    spec.update(more);
    return check_method(spec, "m").size();
  };
  EXPECT_EQ(problems({{"prefill_chunk", 8}}), 0U);
  EXPECT_EQ(problems({{"prefill_chunk", 8}, {"prefill_block", 8}}), 1U);
  EXPECT_EQ(problems({{"prefill_block", 8}, {"budget_rule", {{"name", "heads"}}}}), 1U);
  EXPECT_EQ(problems({{"decode_tokens", 8}}), 1U);
  EXPECT_EQ(problems({{"budget_rule", {{"name", "head"}}}}), 1U);
  EXPECT_EQ(problems({{"decode_scorer", {{"name", "keydiff"}}}}), 1U);
  EXPECT_EQ(problems({{"decode_interval", 8}, {"decode_scorer", {{"name", "keydiff"}}}}), 0U);
  EXPECT_EQ(problems({{"decode_interval", 8}, {"decode_scorer", {{"name", "h2o"}}}}), 1U);
  EXPECT_EQ(problems({{"decode_interval", 8}, {"decode_scorer", {{"name", "capkv"}}}}), 1U);
  EXPECT_EQ(problems({{"threshold", 1}}), 1U);          // beside keep
  EXPECT_EQ(problems({{"protect_prompt", true}}), 1U);  // nothing would ever leave
  EXPECT_EQ(problems({{"protect_prompt", true}, {"decode_interval", 8}}), 0U);
  EXPECT_EQ(problems({{"protect_prompt", true}, {"decode_interval", 8}, {"prefill_chunk", 8}}), 1U);
}

}  // namespace
}  // namespace kvarena
