// Computing some tokens of a prompt, against passes that append: here, and in another program on a device.

#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "harness/cache/attend_plan.h"
#include "harness/core/error.h"
#include "harness/core/random.h"
#include "harness/engine/reuse/chunk_store.h"
#include "harness/engine/reuse/recovery.h"
#include "tests/harness/engine/reuse/support.h"
#include "tests/support/computed_model.h"
#include "tests/support/golden_model.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using testing::expect_same_bits;
using testing::FullPrompt;
using testing::golden_model;
using testing::tiny_prompt;

Transformer tiny_model(const TransformerOptions& options = {}) {
  const ModelConfig config = testing::tiny_config();
  return testing::computed_model(config, testing::RandomCheckpoint(testing::llama_tensors(config), 1), options);
}

std::vector<int32_t> numbers(int64_t first, int64_t end) {
  std::vector<int32_t> list(static_cast<size_t>(end - first));
  std::iota(list.begin(), list.end(), static_cast<int32_t>(first));
  return list;
}

/// The chunks of a prompt, computed alone and put at their places.
KvCache assembled(Transformer& model, const std::vector<int32_t>& tokens, int64_t chunk, int64_t end) {
  KvCache cache = model.make_cache();
  for (int64_t begin = 0; begin < end; begin += chunk) {
    const auto own = std::span(tokens).subspan(begin, std::min(chunk, end - begin));
    append_recovered(model, *compute_chunk(model, own), cache);
  }
  return cache;
}

void expect_full_prefill(Transformer& model, const std::vector<int32_t>& tokens, int64_t chunk, int64_t end) {
  const auto n = static_cast<int64_t>(tokens.size());
  const FullPrompt full(model, tokens);
  KvCache cache = assembled(model, tokens, chunk, end);
  const Recomputed computed = model.recompute({.tokens = tokens, .positions = numbers(0, n), .cache = &cache});
  EXPECT_EQ(std::vector<float>(computed.logits.begin(), computed.logits.end()), full.logits);
  EXPECT_EQ(computed.rows, std::vector<int64_t>(static_cast<size_t>(model.config().layers), n));
  expect_same_bits(cache, full.cache);
}

TEST(Recompute, EveryTokenGivesAFullPrefillBitForBit) {
  Transformer model = tiny_model();
  for (const int64_t n : {1, 2, 40, 512, 513}) {
    SCOPED_TRACE(n);
    const std::vector<int32_t> tokens = tiny_prompt(n);
    expect_full_prefill(model, tokens, 128, n - 1);
    expect_full_prefill(model, tokens, 128, n);  // every token has an entry already
    expect_full_prefill(model, tokens, 128, 0);
  }
}

TEST(Recompute, EveryTokenGivesAFullPrefillInEveryFamily) {
  for (const char* kind : {"mistral", "qwen2_sliding", "llama_dynamic", "qwen3", "qwen3_moe", "llama31", "llama_yarn",
                           "gemma3", "deepseek_v2", "gpt_oss", "phi4_mini", "granite", "olmo2", "llama4"}) {
    SCOPED_TRACE(kind);
    const testing::GoldenModel golden = golden_model(kind);
    if (!testing::computes(golden.config.architecture)) continue;
    Transformer model = testing::computed_model(golden.config, golden.checkpoint());
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 60; ++i) tokens.push_back((i * 37 + 5) % static_cast<int32_t>(model.config().vocab_size));
    expect_full_prefill(model, tokens, 16, 50);
  }
}

/// Reference of a selection, by passes of one token: each listed token in turn is fed to a cache that holds the entries
/// before it, and its entries replace the old ones.
std::vector<float> recompute_by_decoding(Transformer& model, const std::vector<int32_t>& tokens,
                                         const std::vector<int32_t>& positions, KvCache& cache) {
  std::vector<float> logits;
  for (const int32_t position : positions) {
    KvCache before = cache.clone();
    before.truncate(position);
    before.prompt_length = static_cast<int64_t>(tokens.size());
    const SequencePass pass{.tokens = std::span(tokens).subspan(position, 1), .cache = &before};
    const std::span<const float> row = model.forward({&pass, 1});
    logits.assign(row.begin(), row.end());
    KvCache after = before.clone();
    for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
      const int64_t left = cache.layers[layer].entries(0) - position - 1;
      if (left > 0) after.layers[layer].tail().append_entries(cache.layers[layer].tail(), position + 1, left);
    }
    after.length = std::max<int64_t>(cache.length, position + 1);
    cache = std::move(after);
  }
  return logits;
}

TEST(Recompute, ASelectionEqualsFeedingItsTokensOneByOne) {
  Transformer model = tiny_model();
  const RandomStream draws(20260101, "selections");
  for (uint64_t round = 0; round < 6; ++round) {
    SCOPED_TRACE(round);
    const int64_t n = 90 + static_cast<int64_t>(draws.below(60, 10 * round));
    const int64_t context = n - 1 - static_cast<int64_t>(draws.below(20, 10 * round + 1));
    const std::vector<int32_t> tokens = tiny_prompt(n, round);
    std::vector<int32_t> positions;
    for (int64_t t = 0; t < context; ++t) {
      if (draws.below(4, 1000 * (round + 1) + static_cast<uint64_t>(t)) == 0)
        positions.push_back(static_cast<int32_t>(t));
    }
    for (const int32_t t : numbers(context, n)) positions.push_back(t);

    KvCache cache = assembled(model, tokens, 32, context);
    KvCache expected = cache.clone();
    const std::vector<float> logits = recompute_by_decoding(model, tokens, positions, expected);
    const Recomputed computed = model.recompute({.tokens = tokens, .positions = positions, .cache = &cache});
    EXPECT_EQ(std::vector<float>(computed.logits.begin(), computed.logits.end()), logits);
    EXPECT_EQ(computed.positions, positions);
    expect_same_bits(cache, expected);
  }
}

/// Rows over caches that hold more, beside a prompt and a step: on the host one pass computes them all, and nobody sees
/// the others.
TEST(Recompute, SelectionsShareAPassWithPromptsAndSteps) {
  Transformer model = tiny_model();
  constexpr int64_t n = 150, context = 140;
  std::vector<std::vector<int32_t>> prompts, lists;
  std::vector<KvCache> caches, expected;
  std::vector<std::vector<float>> logits;
  for (uint64_t i = 0; i < 2; ++i) {
    prompts.push_back(tiny_prompt(n, i));
    lists.emplace_back();
    for (auto t = static_cast<int32_t>(i); t < context; t += 3 + static_cast<int32_t>(i)) lists.back().push_back(t);
    for (const int32_t t : numbers(context, n)) lists.back().push_back(t);
    caches.push_back(assembled(model, prompts.back(), 32, context));
    caches.back().prompt_length = n;
    expected.push_back(caches.back().clone());
    const Recomputed alone =
        model.recompute({.tokens = prompts.back(), .positions = lists.back(), .cache = &expected.back()});
    logits.emplace_back(alone.logits.begin(), alone.logits.end());
  }
  const std::vector<int32_t> other = tiny_prompt(60, 7);
  const FullPrompt full(model, other);
  KvCache stepped = model.make_cache();
  const SequencePass before{.tokens = std::span(other).first(59), .cache = &stepped};
  (void)model.forward({&before, 1});
  KvCache read = model.make_cache();
  const auto vocab = static_cast<size_t>(model.config().vocab_size);
  for (const size_t cut : {size_t{20}, size_t{64}}) {  // the first rows of both, then the others
    std::vector<SequencePass> batch;
    std::vector<std::vector<int32_t>> tokens(2);
    for (size_t i = 0; i < 2; ++i) {
      const bool last = cut == 64;
      const auto rows = last ? std::span(lists[i]).subspan(20) : std::span(lists[i]).first(20);
      for (const int32_t t : rows) tokens[i].push_back(prompts[i][static_cast<size_t>(t)]);
      batch.push_back({.tokens = tokens[i],
                       .cache = &caches[i],
                       .logits = last ? LogitsRows::last : LogitsRows::none,
                       .positions = rows});
    }
    if (cut == 20) {
      batch.insert(batch.begin(), {.tokens = std::span(other).subspan(59), .cache = &stepped});
      EXPECT_EQ(model.forward(batch).size(), vocab);
      expect_same_bits(stepped, full.cache);
      continue;
    }
    batch.insert(batch.begin() + 1, {.tokens = other, .cache = &read});
    const std::span<const float> all = model.forward(batch);
    const auto row = [&](size_t i) {
      return std::vector<float>(all.begin() + i * vocab, all.begin() + (i + 1) * vocab);
    };
    EXPECT_EQ(row(0), logits[0]);
    EXPECT_EQ(row(1), full.logits);
    EXPECT_EQ(row(2), logits[1]);
  }
  expect_same_bits(read, full.cache);
  for (size_t i = 0; i < 2; ++i) expect_same_bits(caches[i], expected[i]);
}

/// Lets rows go that a list does not name, at one layer.
class OneLayer final : public RowFilter {
 public:
  OneLayer(int64_t layer, std::vector<int32_t> kept) : layer_(layer), kept_(std::move(kept)) {}
  [[nodiscard]] bool judges(int64_t layer) const override { return layer == layer_; }
  void see(int64_t /*layer*/, std::span<const int32_t> positions, const float* keys, const float* values,
           int64_t stride, const LayerCache& cache) override {
    const int64_t width = cache.shape().kv_heads * cache.shape().head_dim;
    for (size_t i = 0; i < positions.size(); ++i) {
      seen.push_back(positions[i]);
      fresh.insert(fresh.end(), keys + i * stride, keys + i * stride + width);
      fresh.insert(fresh.end(), values + i * stride, values + i * stride + width);
    }
  }
  [[nodiscard]] std::vector<int32_t> keep(int64_t /*layer*/, std::span<const int32_t> /*positions*/) override {
    return kept_;
  }
  std::vector<int32_t> seen;
  std::vector<float> fresh;

 private:
  int64_t layer_;
  std::vector<int32_t> kept_;
};

TEST(Recompute, RowsThatAFilterDropsKeepTheirOldEntriesInLaterLayers) {
  Transformer model = tiny_model({.cache = kernels::DType::f32});
  const std::vector<int32_t> tokens = tiny_prompt(600);
  const FullPrompt full(model, tokens);
  const KvCache old = assembled(model, tokens, 64, 590);
  KvCache cache = old.clone();
  std::vector<int32_t> kept = {70, 71, 200, 555};
  for (const int32_t t : numbers(590, 600)) kept.push_back(t);
  OneLayer filter(1, kept);
  const Recomputed computed =
      model.recompute({.tokens = tokens, .positions = numbers(0, 600), .cache = &cache, .filter = &filter});
  EXPECT_EQ(computed.rows, (std::vector<int64_t>{600, 14, 14}));
  EXPECT_EQ(computed.positions, kept);
  EXPECT_EQ(filter.seen, numbers(0, 600));

  const int64_t dim = model.layer_shape(0).head_dim;
  for (int64_t head = 0; head < model.layer_shape(0).kv_heads; ++head) {
    // Layers 0 and 1 were computed for every token, and what the filter saw is what they hold.
    for (const size_t layer : {0U, 1U}) {
      EXPECT_EQ(testing::entries_of(cache.layers[layer], head), testing::entries_of(full.cache.layers[layer], head));
    }
    const std::vector<float> one = testing::entries_of(cache.layers[1], head);
    for (int64_t t = 0; t < 600; ++t) {
      ASSERT_EQ(filter.fresh[(2 * t * 2 + head) * dim], one[t * dim]) << t;
    }
    const std::vector<float> two = testing::entries_of(cache.layers[2], head);
    const std::vector<float> before = testing::entries_of(old.layers[2], head);
    for (int64_t t = 0; t < 590; ++t) {
      const bool fresh = std::ranges::find(kept, t) != kept.end();
      EXPECT_EQ(std::equal(&two[t * dim], &two[(t + 1) * dim], &before[t * dim]), !fresh) << "token " << t;
    }
  }
}

/// Takes rows out behind each layer, and looks at what the others attended to.
class Thinning final : public RowPruner {
 public:
  /// Drops every `step`th of the rows that a layer computed; 0: none.
  explicit Thinning(int32_t step) : step_(step) {}

  void attended(int64_t layer, std::span<const int32_t> positions, const LayerCache& cache, const LayerQueries& queries,
                const float* lse) override {
    if (std::cmp_equal(layer, rows.size())) rows.emplace_back();
    rows.back().insert(rows.back().end(), positions.begin(), positions.end());
    EXPECT_EQ(cache.tail().positions(0), rows.back());  // all that came by so far, these last
    ASSERT_EQ(queries.q_len, std::ssize(positions));
    const int64_t entries = cache.tail().entries(0), q_heads = cache.shape().q_heads;
    std::vector<float> sums(static_cast<size_t>(entries * q_heads));
    add_probabilities(cache.tail().plan_newest(queries), lse, sums.data(), entries);
    for (int64_t head = 0; head < q_heads; ++head) {
      const auto own = std::span(sums).subspan(static_cast<size_t>(head * entries), static_cast<size_t>(entries));
      EXPECT_NEAR(std::accumulate(own.begin(), own.end(), 0.0), static_cast<double>(queries.q_len), 1e-2);
    }
  }
  [[nodiscard]] std::vector<int32_t> keep(int64_t /*layer*/, std::span<const int32_t> positions) override {
    std::vector<int32_t> kept;
    for (size_t i = 0; i < positions.size(); ++i) {
      if (step_ == 0 || i % static_cast<size_t>(step_) != 1 || i + 1 == positions.size()) kept.push_back(positions[i]);
    }
    return kept;
  }

  std::vector<std::vector<int32_t>> rows;  // [layers]

 private:
  int32_t step_;
};

TEST(Recompute, RowsThatAPrunerTakesOutHaveNoEntriesInLaterLayers) {
  Transformer model = tiny_model();
  const std::vector<int32_t> tokens = tiny_prompt(700);
  const FullPrompt full(model, tokens);
  for (const int32_t step : {0, 3}) {
    SCOPED_TRACE(step);
    Thinning pruner(step);
    KvCache cache = model.make_cache();
    const Recomputed computed =
        model.recompute({.tokens = tokens, .positions = numbers(0, 700), .cache = &cache, .pruner = &pruner});
    EXPECT_EQ(computed.rows, step == 0 ? (std::vector<int64_t>{700, 700, 700}) : (std::vector<int64_t>{700, 467, 312}));
    EXPECT_EQ(computed.positions, pruner.rows.back());
    for (size_t layer = 0; layer < 3; ++layer) EXPECT_EQ(cache.layers[layer].tail().positions(1), pruner.rows[layer]);
    EXPECT_EQ(cache.length, 700);
    const std::vector<float> logits(computed.logits.begin(), computed.logits.end());
    EXPECT_EQ(logits == full.logits, step == 0);
    if (step == 0) {
      expect_same_bits(cache, full.cache);
    } else {
      EXPECT_EQ(testing::entries_of(cache.layers[0], 0), testing::entries_of(full.cache.layers[0], 0));
    }
  }
}

TEST(Recompute, PromptsThatTheModelCannotTakeAreRefused) {
  Transformer model = tiny_model();
  std::vector<int32_t> tokens = tiny_prompt(20);
  tokens[3] = 128;
  KvCache cache = model.make_cache();
  EXPECT_THROW((void)model.recompute({.tokens = tokens, .positions = numbers(0, 20), .cache = &cache}), UserError);
  tokens = tiny_prompt(2049);
  EXPECT_THROW((void)model.recompute({.tokens = tokens, .positions = numbers(0, 2049), .cache = &cache}), UserError);
}

}  // namespace
}  // namespace kvarena
