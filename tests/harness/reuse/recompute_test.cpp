// Computing some tokens of a prompt, against passes that append.

#include <gtest/gtest.h>

#include <numeric>

#include "harness/core/error.h"
#include "harness/reuse/chunk_store.h"
#include "harness/reuse/recovery.h"
#include "tests/harness/reuse/support.h"
#include "tests/support/golden_model.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using testing::expect_same_bits;
using testing::FullPrompt;
using testing::golden_model;
using testing::tiny_model;
using testing::tiny_prompt;

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
  for (const int64_t n : {1, 2, 40, 511, 512, 513, 700}) {
    SCOPED_TRACE(n);
    const std::vector<int32_t> tokens = tiny_prompt(n);
    expect_full_prefill(model, tokens, 128, n - 1);
    expect_full_prefill(model, tokens, 128, n);  // every token has an entry already
    expect_full_prefill(model, tokens, 128, 0);
  }
}

TEST(Recompute, EveryTokenGivesAFullPrefillInEveryFamily) {
  for (const char* kind :
       {"mistral", "qwen2_sliding", "llama_dynamic", "qwen3", "qwen3_moe", "llama31", "llama_yarn", "deepseek_v2"}) {
    SCOPED_TRACE(kind);
    Transformer model = golden_model(kind).transformer({});
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 60; ++i) tokens.push_back((i * 37 + 5) % static_cast<int32_t>(model.config().vocab_size));
    expect_full_prefill(model, tokens, 16, 50);
  }
}

/// What a selection must give, by passes of one token: each listed token in turn is fed to a cache that holds the
/// entries in front of it, and its entries take the old ones' place.
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
  Transformer model = testing::tiny_model(1, {.cache = kernels::DType::f32});
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
