// Dropping methods on cases small enough to work out by hand, and what must hold for all of them on random prompts.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/cache/attend_plan.h"
#include "harness/core/random.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/observe.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "tests/support/random_entries.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::random_floats;
using List = std::vector<int32_t>;

constexpr int64_t kDim = 16;

/// One layer with one kv head, whose entries and observations a test sets.
struct OneHead {
  explicit OneHead(const std::vector<std::vector<float>>& keys, int64_t q_heads = 1)
      : shape{.q_heads = q_heads, .kv_heads = 1, .head_dim = kDim, .dtype = DType::f32}, cache(1, shape) {
    seen.entries = static_cast<int64_t>(keys.size());
    append(keys);
  }
  void append(const std::vector<std::vector<float>>& keys, const std::vector<std::vector<float>>& values = {}) {
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::vector<float> key = padded(keys[i]);
      const std::vector<float> value = padded(values.empty() ? keys[i] : values[i]);
      cache.layers[0].append(key.data(), value.data(), 1, kDim, cache.length++);
    }
  }
  static std::vector<float> padded(std::vector<float> row) {
    row.resize(kDim, 0.0F);
    return row;
  }
  /// A query per row whose probability of entry i is exp(k[i][head]) / exp(lse): queries are 4 e_head.
  void last_queries(int64_t rows) {
    seen.window = rows;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t head = 0; head < shape.q_heads; ++head) {
        std::vector<float> q(kDim, 0.0F);
        q[head] = 4;  // scores are divided by sqrt(16)
        seen.window_queries.insert(seen.window_queries.end(), q.begin(), q.end());
        seen.window_lse.push_back(0);
      }
    }
  }
  LayerContext context() {
    return {.layer = 0, .layers = 1, .cache = cache.layers[0], .activity = activity, .prompt_tokens = seen.entries};
  }
  List compress(const json& spec) {
    method = make_method(spec, "test");
    if (!method->needs().statistics.empty()) seen.statistics = statistics(method->needs());
    LayerContext layer = context();
    method->compress_all({&layer, 1}, {&seen, 1});
    return held();
  }
  List settle() {
    LayerContext layer = context();
    method->after_append(layer);
    return held();
  }
  /// Statistics over the last queries.
  std::vector<GatheredStatistic> statistics(const Needs& needs) {
    PromptObserver observer(needs, seen.entries, /*layers=*/1, /*hidden_size=*/0, {});
    const LayerQueries queries{.q = seen.window_queries.data(), .q_len = seen.window, .q_stride = shape.q_heads * kDim};
    std::vector<float> out(static_cast<size_t>(seen.window * shape.q_heads * kDim));
    std::vector<float> max(static_cast<size_t>(seen.window * shape.q_heads)), sum(max.size());
    kernels::AttentionState state{.out = out.data(), .max = max.data(), .sum = sum.data()};
    kernels::init_attention(state, seen.window, shape.q_heads, kDim);
    attend(cache.layers[0].plan(queries), state, observer.reader(0, cache.layers[0], queries));
    return observer.take()[0].statistics;
  }
  List held() { return cache.layers[0].tail().positions(0); }

  LayerShape shape;
  KvCache cache;
  LayerObservations seen;
  Activity activity;
  std::unique_ptr<Method> method;
};

std::vector<std::vector<float>> rows(int64_t n) {
  std::vector<std::vector<float>> list;
  for (int64_t i = 0; i < n; ++i) list.push_back(random_floats(kDim, "row", static_cast<uint64_t>(i)));
  return list;
}

std::vector<float> logs(const std::vector<float>& values) {
  std::vector<float> list;
  for (const float value : values) list.push_back(std::log(value));
  return list;
}

TEST(Dropping, WindowsKeepTheirEntriesAndSlide) {
  OneHead sinks(rows(10));
  EXPECT_EQ(sinks.compress({{"name", "streaming_llm"}, {"sinks", 2}, {"keep", 0.5}}), (List{0, 1, 7, 8, 9}));
  OneHead small(rows(5));
  EXPECT_EQ(small.compress({{"name", "streaming_llm"}, {"sinks", 2}, {"tokens", 5}}), (List{0, 1, 2, 3, 4}));
  small.append(rows(1));
  EXPECT_EQ(small.settle(), (List{0, 1, 3, 4, 5}));
  OneHead window(rows(5));
  EXPECT_EQ(window.compress({{"name", "sliding_window"}, {"tokens", 3}}), (List{2, 3, 4}));
}

TEST(Dropping, ChanceHasASeed) {
  const auto draw = [](int64_t seed) {
    OneHead layer(rows(60));
    return layer.compress({{"name", "random"}, {"seed", seed}, {"keep", 0.5}});
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
  EXPECT_EQ(draw(3).size(), 30U);
}

TEST(Dropping, HeavyHittersOfFourQueries) {
  OneHead layer(rows(4));
  layer.seen.prompt_attention = {1.8F, 1.0F, 0.8F, 0.4F};  // columns of [1], [.5,.5], [.2,.3,.5], [.1,.2,.3,.4]
  EXPECT_EQ(layer.compress({{"name", "h2o"}, {"tokens", 2}}), (List{0, 3}));
}

TEST(Dropping, TovaMayLoseTheNewestUnlessAskedNotTo) {
  const std::vector<float> first = logs({0.5F, 0.4F, 0.1F});
  const std::vector<float> second = logs({0.5F, 0.3F, 0.2F});
  const auto kept = [&](bool newest) {
    OneHead layer({{first[0], second[0]}, {first[1], second[1]}, {first[2], second[2]}}, 2);
    layer.last_queries(1);
    return layer.compress({{"name", "tova"}, {"keep_newest", newest}, {"tokens", 2}});
  };
  EXPECT_EQ(kept(false), (List{0, 1}));  // the authors' rule
  EXPECT_EQ(kept(true), (List{0, 2}));   // kvpress
}

TEST(Dropping, SnapKvPoolsThePrefixWithPaddingThatCounts) {
  const std::vector<float> k = logs({0.15F, 0.3F, 0.2F, 0.1F, 0.125F, 0.125F});
  const auto kept = [&](const char* pool) {
    OneHead layer({{k[0]}, {k[1]}, {k[2]}, {k[3]}, {k[4]}, {k[5]}});
    layer.last_queries(2);
    return layer.compress({{"name", "snapkv"}, {"window", 2}, {"kernel", 3}, {"pool", pool}, {"tokens", 3}});
  };
  EXPECT_EQ(kept("avg"), (List{1, 4, 5}));
  EXPECT_EQ(kept("max"), (List{0, 4, 5}));  // a plateau of three: the lower index
}

TEST(Dropping, NormsAndDirectionsOfKeys) {
  const auto directions = [](int64_t tokens) {
    OneHead layer({{1, 0}, {2, 0}, {0, 3}});
    return layer.compress({{"name", "keydiff"}, {"tokens", tokens}});
  };
  EXPECT_EQ(directions(1), (List{2}));
  EXPECT_EQ(directions(2), (List{0, 2}));
  OneHead norms({{3}, {1}, {2}});
  EXPECT_EQ(norms.compress({{"name", "knorm"}, {"tokens", 2}}), (List{1, 2}));
}

TEST(Dropping, CriticalKvWeighsTheSecondHalfByTheOutput) {
  OneHead layer({});
  layer.append(rows(4), {{1}, {1}, {1}, {10}});
  layer.seen.entries = 4;
  layer.seen.prompt_attention = {0.4F, 0.3F, 0.2F, 0.1F};
  layer.seen.output_projection = [] { return OneHead::padded({1}); };  // hidden size 1: P = |v_0|
  EXPECT_EQ(layer.compress({{"name", "criticalkv"}, {"scorer", {{"name", "h2o"}, {"recent_share", 0}}}, {"tokens", 2}}),
            (List{0, 3}));
}

TEST(Dropping, ChunksStayWholeUnlessAskedNotTo) {
  const auto kept = [](bool partial) {
    OneHead layer(rows(50));
    return layer.compress({{"name", "chunkkv"}, {"scorer", {{"name", "knorm"}}}, {"partial", partial}, {"keep", 0.5}});
  };
  const List whole = kept(false);  // int(3 chunks / 2) = 1: of 20 entries, or the last one of 10
  EXPECT_EQ(whole.front() % 20, 0);
  EXPECT_EQ(whole.size(), whole.front() == 40 ? 10U : 20U);
  EXPECT_EQ(kept(true).size(), 25U);
}

TEST(Dropping, LagKvJudgesAPartitionByTheNext) {
  OneHead layer({{0, 0}, {2, 0}, {0, 0}, {1, 1}});
  EXPECT_EQ(layer.compress({{"name", "lagkv"}, {"form", "authors"}, {"sinks", 0}, {"lag", 2}, {"keep", 0.5}}),
            (List{1, 2, 3}));
}

TEST(Dropping, LagKvInTheAuthorsFormKeepsWholePartitionsAtTheEndAndGoesOnWhileDecoding) {
  const int64_t sinks = 16;
  const int64_t lag = 64;
  OneHead layer(rows(sinks + 3 * lag));
  const json spec = {{"name", "lagkv"}, {"form", "authors"}, {"sinks", sinks}, {"lag", lag}, {"keep", 0.5}};
  EXPECT_EQ(static_cast<int64_t>(layer.compress(spec).size()), sinks + lag / 2 + lag / 2 + lag);
  for (int64_t i = 1; i < lag; ++i) {
    layer.append(rows(1));
    EXPECT_EQ(static_cast<int64_t>(layer.settle().size()), sinks + 2 * lag + i);
  }
  layer.append(rows(1));  // the partition after the last one is complete
  EXPECT_EQ(static_cast<int64_t>(layer.settle().size()), sinks + 3 * lag / 2 + lag);
}

TEST(Dropping, RoCoSparesWhatSwings) {
  OneHead layer(rows(3));
  layer.last_queries(3);
  (void)layer.compress({{"name", "roco"}, {"spared", 0}, {"recent_share", 0.0}, {"tokens", 3}});
  layer.append(rows(1));
  const std::vector<float> mean = {0.30F, 0.05F, 0.06F, 0.2F};
  const std::vector<float> deviation = {0.01F, 0.30F, 0.02F, 0.02F};
  const std::span<float> sums = layer.cache.layers[0].tail().entry_scores(0);
  for (size_t i = 0; i < 4; ++i) {
    sums[3 * i] = 100 * mean[i];
    sums[3 * i + 1] = 100 * (deviation[i] * deviation[i] + mean[i] * mean[i]);
    sums[3 * i + 2] = 100;
  }
  EXPECT_EQ(layer.settle(), (List{0, 1, 3}));  // 1 has the smallest mean but is unsteady
}

TEST(Dropping, ScissorhandsDropsTheMostIgnoredAtOnce) {
  OneHead layer(rows(4));
  layer.last_queries(2);
  (void)layer.compress({{"name", "scissorhands"}, {"history", 2}, {"recent", 1}, {"tokens", 4}});
  layer.append(rows(1));
  const std::vector<float> bits = {0, 1, 1, 3, 3};  // 0, 1, 1, 2, 2 of two queries
  std::ranges::copy(bits, layer.cache.layers[0].tail().entry_scores(0).begin());
  EXPECT_EQ(layer.settle(), (List{0, 2, 4}));  // 3 has the largest count; of 1 and 2 the older leaves; 4 is recent
}

// --- every method -----------------------------------------------------------------------------------------------

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
          EXPECT_EQ(total, 3 * 2 * capacity);
          EXPECT_EQ(activity.entries_dropped, 3 * 2 * (n - capacity));
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
      MethodHooks hooks(*method, activity, 3, 90, start.model.get());
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

TEST(Ragged, EqualsDenseAttentionUnderAMask) {
  Transformer model = testing::tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  const auto method = make_method({{"name", "adakv"}, {"scorer", {{"name", "knorm"}}}, {"keep", 0.3}}, "test");
  const Prefill start = prefill(model, testing::tiny_prompt(70), method->needs());
  Activity activity;
  const KvCache cache = compress_prompt(start, *method, activity);
  const LayerShape& shape = cache.layers[0].shape();
  const std::vector<float> q = random_floats(shape.q_heads * shape.head_dim, "query");
  bool ragged = false;
  for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
    std::vector<float> out(q.size());
    std::vector<float> state(2 * static_cast<size_t>(shape.q_heads));
    kernels::AttentionState attention{.out = out.data(), .max = state.data(), .sum = state.data() + shape.q_heads};
    kernels::init_attention(attention, 1, shape.q_heads, shape.head_dim);
    const LayerQueries queries{.q = q.data(), .q_len = 1, .q_stride = static_cast<int64_t>(q.size()), .position = 70};
    attend(cache.layers[layer].plan(queries), attention);
    kernels::finish_attention(attention, 1, shape.q_heads, shape.head_dim, nullptr);

    const EntrySegment& full = start.cache.layers[layer].tail();
    ragged = ragged || cache.layers[layer].entries(0) != cache.layers[layer].entries(1);
    for (int64_t head = 0; head < shape.q_heads; ++head) {
      std::vector<float> keys(70 * static_cast<size_t>(shape.head_dim));
      std::vector<float> values(keys.size());
      full.read(head / shape.group(), keys.data(), values.data());
      std::vector<double> expected(static_cast<size_t>(shape.head_dim), 0.0);
      double sum = 0;
      for (const int32_t i : cache.layers[layer].tail().positions(head / shape.group())) {
        double dot = 0;
        for (int64_t c = 0; c < shape.head_dim; ++c) dot += q[head * shape.head_dim + c] * keys[i * shape.head_dim + c];
        const double weight = std::exp(dot / std::sqrt(static_cast<double>(shape.head_dim)));
        sum += weight;
        for (int64_t c = 0; c < shape.head_dim; ++c) expected[c] += weight * values[i * shape.head_dim + c];
      }
      for (int64_t c = 0; c < shape.head_dim; ++c) EXPECT_NEAR(out[head * shape.head_dim + c], expected[c] / sum, 1e-4);
    }
  }
  EXPECT_TRUE(ragged);
}

TEST(Keyformer, WithoutNoiseIsHeavyHitters) {
  Transformer model = testing::tiny_model();
  const auto plain =
      make_method({{"name", "keyformer"}, {"gumbel", false}, {"recent_share", 0.5}, {"keep", 0.4}}, "test");
  const auto h2o = make_method({{"name", "h2o"}, {"keep", 0.4}}, "test");
  const Prefill start = prefill(model, testing::tiny_prompt(80), combine(plain->needs(), h2o->needs()));
  Activity activity;
  const KvCache a = compress_prompt(start, *plain, activity);
  const KvCache b = compress_prompt(start, *h2o, activity);
  for (size_t layer = 0; layer < 3; ++layer) {
    for (int64_t head = 0; head < 2; ++head) {
      EXPECT_EQ(a.layers[layer].tail().positions(head), b.layers[layer].tail().positions(head));
    }
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
}

}  // namespace
}  // namespace kvarena
