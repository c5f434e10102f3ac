// Results of tools that leave by a rule: entries of every head after the prompt and after each token behind it, beside
// LangChain's rule over messages (tests/golden/tool_results.py).

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/observe.h"
#include "harness/method/registry.h"
#include "tests/support/decoding.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::tiny_model;
using testing::tiny_prompt;

using Positions = std::vector<int32_t>;

std::vector<ResultTokens> results_of(const json& list) {
  std::vector<ResultTokens> results;
  for (const json& one : list) results.push_back({one[0], one[1], one[2]});
  return results;
}

/// Positions of the first tokens without those of `gone` results behind their first `stub`.
Positions held(int64_t tokens, const std::vector<ResultTokens>& results, const std::set<size_t>& gone,
               int64_t stub = 0) {
  Positions positions;
  for (int64_t position = 0; position < tokens; ++position) {
    bool stays = true;
    for (const size_t number : gone) {
      stays = stays && (position < results[number].begin + stub || position >= results[number].end);
    }
    if (stays) positions.push_back(static_cast<int32_t>(position));
  }
  return positions;
}

void expect_held(const KvCache& cache, const Positions& positions) {
  for (const LayerCache& layer : cache.layers) {
    for (int64_t head = 0; head < layer.shape().kv_heads; ++head) {
      ASSERT_EQ(layer.tail().positions(head), positions);
    }
  }
}

/// A prompt of the first `prompt` of these tokens, whose results are known.
Prefill read(Transformer& model, const Positions& tokens, int64_t prompt, const std::vector<ResultTokens>& results) {
  Prefill start = prefill(model, std::span(tokens).first(static_cast<size_t>(prompt)), {});
  start.layout.results = results;
  return start;
}

TEST(ToolResults, LeaveWhenLangChainClearsThem) {
  Transformer model = tiny_model();
  for (const json& one : testing::golden("tool_results.json")["cases"]) {
    const int64_t total = one["tokens"], prompt = one["prompt"];
    const std::vector<ResultTokens> results = results_of(one["results"]);
    const Positions tokens = tiny_prompt(total);
    const Prefill start = read(model, tokens, prompt, results);
    json spec = one["settings"];
    spec["name"] = "tool_results";
    const auto method = make_method(spec, "test");
    Activity activity;
    KvCache cache = compress_prompt(start, *method, activity);
    MethodHooks hooks(*method, activity, prompt, start.model.get());
    for (int64_t fed = prompt;; ++fed) {
      const auto gone = one["gone"][static_cast<size_t>(fed - prompt)].get<std::set<size_t>>();
      const Positions expected = held(fed, results, gone);
      SCOPED_TRACE(spec.dump() + " after " + std::to_string(fed));
      ASSERT_NO_FATAL_FAILURE(expect_held(cache, expected));
      const auto heads = static_cast<int64_t>(cache.layers.size()) * cache.layers[0].shape().kv_heads;
      ASSERT_EQ(activity.entries_dropped, heads * (fed - std::ssize(expected)));
      if (fed == total) break;
      const SequencePass pass{.tokens = std::span(tokens).subspan(static_cast<size_t>(fed), 1),
                              .cache = &cache,
                              .hooks = &hooks,
                              .logits = LogitsRows::none};
      (void)model.forward({&pass, 1});
    }
  }
}

TEST(ToolResults, FirstTokensStayAsAStubAndMemoryIsGivenBack) {
  Transformer model = tiny_model();
  const std::vector<ResultTokens> results = {{5, 150, "find"}, {160, 163, "find"}, {170, 190, "send"}};
  const Prefill start = read(model, tiny_prompt(200), 200, results);
  Activity activity;
  const auto method = make_method({{"name", "tool_results"}, {"newest", 1}, {"stub", 4}}, "test");
  const KvCache cache = compress_prompt(start, *method, activity);
  expect_held(cache, held(200, results, {0, 1}, 4));
  EXPECT_LT(cache.bytes(), start.cache.bytes() / 2);
}

TEST(ToolResults, ASessionIsToldOfResultsBehindThePrompt) {
  Transformer model = tiny_model();
  const Positions tokens = tiny_prompt(180);
  const std::vector<ResultTokens> results = {{10, 40, "find"}, {60, 90, "find"}, {130, 150, "find"}};
  const json spec = {{"name", "tool_results"}, {"newest", 1}};
  Prefill start = read(model, tokens, 120, {results.begin(), results.begin() + 2});
  const Positions question(tokens.begin() + 120, tokens.end());
  const auto told = testing::decode(model, start, spec, 12, {.question = question, .results = results});
  const auto untold = testing::decode(model, start, spec, 12, {.question = question});
  EXPECT_NE(told.logits, untold.logits);
  start.layout.results = results;
  EXPECT_EQ(testing::decode(model, start, spec, 12, {.question = question}).logits, told.logits);
  const json verified = {{"name", "vericache"}, {"drafter", spec}};
  const auto full = testing::decode(model, start, {{"name", "full"}}, 12, {.question = question});
  const auto drafted = testing::decode(model, start, verified, 12, {.question = question, .results = results});
  EXPECT_EQ(drafted.tokens, full.tokens);
  EXPECT_GT(drafted.activity.entries_dropped, told.activity.entries_dropped / 2);
}

TEST(ToolResults, WithoutResultsNothingLeaves) {
  Transformer model = tiny_model();
  const Prefill start = prefill(model, tiny_prompt(90), {});
  const auto kept = testing::decode(model, start, {{"name", "tool_results"}, {"newest", 0}}, 8);
  EXPECT_FALSE(kept.activity.acted());
  EXPECT_EQ(kept.logits, testing::decode(model, start, {{"name", "full"}}, 8).logits);
}

}  // namespace
}  // namespace kvarena
