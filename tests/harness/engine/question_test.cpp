// Questions that methods have not seen: the context is compressed alone, the question follows as decoded tokens do.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/core/error.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/serving/batch_run.h"
#include "harness/engine/serving/serving_engine.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/future.h"
#include "harness/engine/session/observe.h"
#include "harness/engine/session/selection_meter.h"
#include "harness/model/sampling.h"
#include "tests/support/decoding.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::decode;
using testing::Decoded;
using testing::tiny_model;
using testing::tiny_prompt;

constexpr int64_t kContext = 200;
constexpr int64_t kNewTokens = 12;

/// Methods that compress alone, that go on acting while decoding, and that select.
std::vector<json> compressing() {
  return {{{"name", "snapkv"}, {"keep", 0.3}, {"window", 8}},
          {{"name", "tova"}, {"keep", 0.3}},
          {{"name", "knorm"}, {"keep", 0.3}},
          {{"name", "streaming_llm"}, {"tokens", 64}},
          {{"name", "h2o"}, {"keep", 0.3}},
          {{"name", "kivi"}, {"bits", 2}},
          {{"name", "quest"}, {"keep", 0.25}}};
}

class AskedQuestion : public ::testing::Test {
 protected:
  AskedQuestion() : model_(tiny_model()), context_(tiny_prompt(kContext)), question_(tiny_prompt(23, 99)) {}

  [[nodiscard]] Prefill read(const std::vector<int32_t>& tokens, const Method& method) {
    return prefill(model_, tokens, method.needs());
  }
  [[nodiscard]] Decoded asked(const json& spec, SessionOptions options = {}) {
    options.question = question_;
    return decode(model_, read(context_, *make_method(spec, "test")), spec, kNewTokens, std::move(options));
  }

  /// One pass of `tokens` over a cache; returns the last token's logits.
  std::vector<float> feed(KvCache& cache, std::span<const int32_t> tokens, AttentionHooks* hooks) {
    const SequencePass pass{.tokens = tokens, .cache = &cache, .hooks = hooks, .logits = LogitsRows::last};
    const std::span<const float> logits = model_.forward({&pass, 1});
    return {logits.begin(), logits.end()};
  }

  /// Feeds the question in pieces of `piece` tokens, then greedy answers; returns the logits of each of them.
  testing::Logits answer(KvCache& cache, AttentionHooks* hooks, size_t piece) {
    testing::Logits rows;
    std::vector<float> row;
    for (size_t done = 0; done < question_.size(); done += piece) {
      row = feed(cache, std::span(question_).subspan(done, std::min(piece, question_.size() - done)), hooks);
    }
    while (static_cast<int64_t>(rows.size()) < kNewTokens) {
      rows.push_back(row);
      const int32_t token = sample(row, {}, 0);
      row = feed(cache, {&token, 1}, hooks);
    }
    return rows;
  }

  Transformer model_;
  std::vector<int32_t> context_;
  std::vector<int32_t> question_;
};

TEST_F(AskedQuestion, FullKvAnswersWithTheBitsOfAPromptThatHoldsIt) {
  std::vector<int32_t> whole = context_;
  whole.insert(whole.end(), question_.begin(), question_.end());
  const Decoded seen = decode(model_, prefill(model_, whole, {}), {{"name", "full"}}, kNewTokens);
  const Decoded unseen = asked({{"name", "full"}});
  EXPECT_EQ(unseen.tokens, seen.tokens);
  EXPECT_EQ(unseen.logits, seen.logits);
  const SessionOptions hot{.sampling = {.temperature = 0.9, .seed = 5}};
  EXPECT_EQ(asked({{"name", "full"}}, hot).tokens,
            decode(model_, prefill(model_, whole, {}), {{"name", "full"}}, kNewTokens, hot).tokens);
}

TEST_F(AskedQuestion, IsWhatAContextCompressedByHandAnswers) {
  for (const json& spec : compressing()) {
    const auto method = make_method(spec, "test");
    const Prefill context = read(context_, *method);
    Activity activity;
    KvCache cache = compress_prompt(context, *method, activity);
    const int64_t resident = cache.bytes();
    MethodHooks hooks(*method, activity, kContext, context.model.get());
    const testing::Logits by_hand = answer(cache, &hooks, 1);
    const Decoded decoded = asked(spec);
    EXPECT_EQ(decoded.logits, by_hand) << spec;
    EXPECT_EQ(decoded.resident_bytes, resident) << spec;
    if (!method->only_compresses()) continue;
    KvCache again = compress_prompt(context, *method, activity);
    EXPECT_EQ(answer(again, nullptr, question_.size()), by_hand) << spec << ", the question in one pass";
  }
}

/// The entries of smallest norm, by norms taken in double, as a cache of its own.
TEST_F(AskedQuestion, KnormKeepsKeysOfTheContextThatAreSmallestInDouble) {
  constexpr double keep = 0.3;
  const Prefill context = prefill(model_, context_, {});
  KvCache cache = context.cache.clone();
  for (LayerCache& layer : cache.layers) {
    const LayerShape& shape = layer.shape();
    std::vector<std::vector<int32_t>> kept;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      std::vector<float> keys(static_cast<size_t>(kContext * shape.head_dim));
      layer.tail().read_some(head, 0, kContext, keys.data(), nullptr, shape.head_dim);
      std::vector<double> norms;
      for (int64_t i = 0; i < kContext; ++i) {
        const auto key = std::span(keys).subspan(static_cast<size_t>(i * shape.head_dim), shape.head_dim);
        norms.push_back(std::inner_product(key.begin(), key.end(), key.begin(), 0.0));
      }
      std::vector<int32_t>& own = kept.emplace_back(static_cast<size_t>(kContext));
      std::iota(own.begin(), own.end(), 0);
      std::ranges::sort(own, [&](int32_t a, int32_t b) { return norms[a] < norms[b]; });
      own.resize(static_cast<size_t>(keep * kContext));
      std::ranges::sort(own);
    }
    layer.tail().keep(kept);
  }
  EXPECT_EQ(asked({{"name", "knorm"}, {"keep", keep}}).logits, answer(cache, nullptr, 7));
}

/// Drops every second entry, and counts how often it is asked to.
class CountedHalving final : public Method {
 public:
  void compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> /*seen*/) const override {
    ++compressed;
    for (LayerContext& layer : layers) {
      std::vector<int32_t> kept;
      for (int64_t i = 0; i < layer.cache.entries(0); i += 2) kept.push_back(static_cast<int32_t>(i));
      layer.cache.tail().keep(std::vector(static_cast<size_t>(layer.cache.shape().kv_heads), kept));
    }
  }
  [[nodiscard]] bool only_compresses() const override { return true; }

  mutable int64_t compressed = 0;
};

TEST_F(AskedQuestion, ManyShareOneCompressedContext) {
  const CountedHalving method;
  Prefill context = prefill(model_, context_, {});
  context.compressed = std::make_shared<CompressedPrompts>();
  for (const uint64_t seed : {1, 2, 3}) {
    const auto session = start_session(model_, context, method,
                                       {.stop = {.max_new_tokens = kNewTokens}, .question = tiny_prompt(20, seed)});
    Session* const one[] = {session.get()};
    run_together(model_, one);
    EXPECT_EQ(session->tokens.size(), static_cast<size_t>(kNewTokens));
  }
  EXPECT_EQ(method.compressed, 1);
}

TEST_F(AskedQuestion, OneThatThrowsWhileItIsSharedFailsEveryTime) {
  struct Refuses final : Method {
    void compress_all(std::span<LayerContext> /*layers*/, std::span<const LayerObservations> /*seen*/) const override {
      throw UserError("no");
    }
  };
  const Refuses method;
  Prefill context = prefill(model_, context_, {});
  context.compressed = std::make_shared<CompressedPrompts>();
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW((void)start_session(model_, context, method, {.question = question_}), UserError);
  }
}

/// Attention from queries of the question and of the answer, gathered by other observers: the question's is what its
/// queries add to the attention of all of a longer prompt's, the answer's the future of that prompt.
TEST_F(AskedQuestion, TheFutureOfAContextIsTheQuestionAndTheAnswer) {
  constexpr int64_t kHorizon = 6;
  std::vector<int32_t> whole = context_;
  whole.insert(whole.end(), question_.begin(), question_.end());
  const Needs needs{.prompt_attention = true, .future = kHorizon};
  const Prefill context = prefill(model_, context_, needs), all = prefill(model_, whole, needs);
  const Prefill asked = with_future(model_, context, question_, kHorizon);
  const auto longer = std::ssize(whole);
  for (int64_t layer = 0; layer < model_.config().layers; ++layer) {
    const LayerObservations &own = context.observations[layer], &seen = all.observations[layer];
    for (int64_t head = 0; head < model_.config().q_heads; ++head) {
      double unlike = 0;
      for (int64_t i = 0; i < kContext; ++i) {
        const double expected = seen.prompt_attention[head * longer + i] - own.prompt_attention[head * kContext + i] +
                                seen.future_attention[head * longer + i];
        EXPECT_NEAR(asked.observations[layer].future_attention[head * kContext + i], expected, 1e-4 * (1 + expected));
        unlike += std::abs(expected - own.future_attention[head * kContext + i]);
      }
      EXPECT_GT(unlike, 0.1) << "the context's own continuation is another one";
    }
  }
  const json spec = {{"name", "future_oracle"}, {"keep", 0.3}, {"horizon", kHorizon}};
  Activity activity;
  KvCache cache = compress_prompt(asked, *make_method(spec, "test"), activity);
  EXPECT_EQ(this->asked(spec).logits, answer(cache, nullptr, question_.size()));
}

TEST_F(AskedQuestion, SharesPassesWithOthersAndChangesNothing) {
  std::vector<json> specs = compressing();
  specs.push_back({{"name", "full"}});
  specs.push_back({{"name", "vericache"}, {"draft_length", 5}, {"drafter", {{"name", "h2o"}, {"keep", 0.4}}}});
  std::deque<Prefill> prompts;
  std::vector<std::unique_ptr<Method>> methods;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> running;
  for (const json& spec : specs) {
    methods.push_back(make_method(spec, "test"));
    prompts.push_back(read(context_, *methods.back()));
    sessions.push_back(start_session(model_, prompts.back(), *methods.back(),
                                     {.stop = {.max_new_tokens = kNewTokens}, .question = question_}));
    EXPECT_TRUE(sessions.back()->tokens.empty()) << spec;
    running.push_back(sessions.back().get());
  }
  run_together(model_, running);
  for (size_t i = 0; i < specs.size(); ++i) EXPECT_EQ(sessions[i]->tokens, asked(specs[i]).tokens) << specs[i];
}

TEST_F(AskedQuestion, VerificationIsLosslessThroughItWhateverDrafts) {
  const json snapkv = {{"name", "snapkv"}, {"keep", 0.2}, {"window", 8}};
  const std::vector<json> specs = {
      {{"name", "vericache"}, {"draft_length", 4}, {"drafter", snapkv}},
      {{"name", "vericache"}, {"draft_length", 4}, {"drafter", {{"name", "kivi"}, {"bits", 2}}}},
      {{"name", "vericache"}, {"draft_length", 4}, {"drafter", snapkv}, {"aux", {{"name", "ngram"}}}},
      {{"name", "early_exit"}},
      {{"name", "ngram"}}};
  const SessionOptions hot{.sampling = {.temperature = 0.8, .seed = 11}};
  const Decoded full = asked({{"name", "full"}});
  const std::vector<int32_t> sampled = asked({{"name", "full"}}, hot).tokens;
  for (const json& spec : specs) {
    const Decoded verified = asked(spec);
    EXPECT_EQ(verified.tokens, full.tokens) << spec;
    EXPECT_EQ(verified.logits, full.logits) << spec;
    EXPECT_EQ(asked(spec, hot).tokens, sampled) << spec;
  }
}

TEST_F(AskedQuestion, APerfectDrafterKnowsIt) {
  const Decoded verified = asked({{"name", "vericache"}, {"draft_length", 6}, {"drafter", {{"name", "full"}}}});
  EXPECT_GT(verified.activity.tokens_drafted, 0);
  EXPECT_EQ(verified.activity.tokens_accepted, verified.activity.tokens_drafted);
}

TEST_F(AskedQuestion, AMeterSeesEveryTokenOfItAsAStep) {
  const json spec = {{"name", "quest"}, {"keep", 0.25}};
  const auto method = make_method(spec, "test");
  const Prefill context = read(context_, *method);
  SelectionMeter meter(context.cache);
  const Decoded decoded = decode(model_, context, spec, kNewTokens, {.question = question_, .meter = &meter});
  EXPECT_EQ(decoded.logits, asked(spec).logits);
  EXPECT_EQ(meter.steps().size(), question_.size() + kNewTokens - 1);
  EXPECT_LT(meter.steps().front().hit_rate, 1);
}

TEST_F(AskedQuestion, AServedRequestAnswersAsAlone) {
  const auto facts = model_facts(model_);
  for (const json& spec : compressing()) {
    const auto method = make_method(spec, "test");
    const ServedRequest request{.prompt = context_,
                                .method = method.get(),
                                .options = {.stop = {.max_new_tokens = kNewTokens}, .question = question_}};
    ServingEngine engine(model_, {request, request}, facts);
    const auto run = serve(serving::Load::at_times({0, 0}), engine, {.cache_bytes = 12 * engine.full_bytes(400)});
    for (const int64_t i : {0, 1}) {
      ASSERT_TRUE(engine.answer(i)) << run.requests[static_cast<size_t>(i)].reason;
      EXPECT_EQ(engine.answer(i)->tokens, asked(spec).tokens) << spec;
    }
  }
}

TEST_F(AskedQuestion, AScheduleOfVerificationsStaysLossless) {
  const json spec = {{"name", "vericache"},
                     {"draft_length", 4},
                     {"schedule", "staggered"},
                     {"drafter", {{"name", "snapkv"}, {"keep", 0.2}, {"window", 8}}}};
  const auto method = make_method(spec, "test");
  const auto tiers = std::make_shared<storage::Hierarchy>(
      std::vector<storage::TierSettings>{{.tier = Tier::host, .link = {.name = "test", .bytes_per_s = 500e6}}});
  const Prefill context = prefill(model_, context_, method->needs(), kPrefillChunk, model_facts(model_, {}, tiers));
  const BatchRun run =
      run_batch(model_, context, *method, {.stop = {.max_new_tokens = kNewTokens}, .question = question_},
                {.requests = 2, .device_bytes = int64_t{1} << 30});
  ASSERT_EQ(run.sessions.size(), 2U);
  for (const auto& session : run.sessions) EXPECT_EQ(session->tokens, asked({{"name", "full"}}).tokens);
}

}  // namespace
}  // namespace kvarena
