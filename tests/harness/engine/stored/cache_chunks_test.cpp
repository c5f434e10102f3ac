// Contexts in chunks over tiers: requests read those that they need, and these alone are used.

#include <cmath>
#include <fstream>
#include <numeric>
#include <set>

#include "tests/harness/engine/stored/library.h"

namespace kvarena::stored {
namespace {

using nlohmann::json;

class Chunks : public testing::Library {
 protected:
  struct Opened {
    const Chunking* chunking = nullptr;
    std::unique_ptr<ContextLibrary> library;
  };
  Opened open_chunked(json settings, double host, double disk) {
    settings["name"] = "impress";
    methods_.push_back(make_method(settings, "test"));
    const auto* chunking = dynamic_cast<const PlacingMethod&>(*methods_.back()).chunking();
    return {chunking, open(*methods_.back()->placement(), {CacheForm{}}, host, disk, chunking)};
  }
  [[nodiscard]] Prefill read(uint64_t i, int64_t window) {
    return prefill(model_, context(i), {.window = window}, kPrefillChunk, facts_);
  }
  /// All bits of a cache of context i.
  [[nodiscard]] std::vector<std::byte> bits(uint64_t i, KvCache cache) const {
    return store_cache({.tokens = context(i), .cache = std::move(cache), .model = facts_}, nullptr);
  }
  /// Key of a context's chunk in the store.
  static std::string object(uint64_t i, size_t chunk) { return fmt::format("{}, chunk {}", i, chunk); }
};

/// Attention of the last `window` queries that a few query heads pay to each token, in plain loops.
std::vector<double> plain_scores(const Prefill& prompt, int64_t layer, int64_t window, int64_t probes) {
  const EntrySegment& tail = prompt.cache.layers[static_cast<size_t>(layer)].tail();
  const LayerObservations& seen = prompt.observations[static_cast<size_t>(layer)];
  const LayerShape& shape = tail.shape();
  const int64_t n = tail.entries(0), group = shape.q_heads / shape.kv_heads;
  std::vector<double> sums(static_cast<size_t>(n), 0);
  for (int64_t probe = 0; probe < probes; ++probe) {
    const int64_t head = probe * shape.q_heads / probes;
    std::vector<float> keys(static_cast<size_t>(n * shape.head_dim));
    tail.read_some(head / group, 0, n, keys.data(), nullptr, shape.head_dim);
    for (int64_t row = seen.window - window; row < seen.window; ++row) {
      const int64_t position = n - seen.window + row;
      const float* query = &seen.window_queries[static_cast<size_t>((row * shape.q_heads + head) * shape.head_dim)];
      std::vector<double> weights;
      for (int64_t i = 0; i <= position; ++i) {
        const double dot =
            std::inner_product(query, query + shape.head_dim, &keys[static_cast<size_t>(i * shape.head_dim)], 0.0);
        weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(shape.head_dim))));
      }
      const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (size_t i = 0; i < weights.size(); ++i) sums[i] += weights[i] / all;
    }
  }
  return sums;
}

/// The best `count`, by looking for the best one that is left.
std::set<int32_t> plain_best(std::vector<double> scores, int64_t count) {
  std::set<int32_t> best;
  for (int64_t k = 0; k < count; ++k) {
    const auto at = std::ranges::max_element(scores) - scores.begin();
    best.insert(static_cast<int32_t>(at));
    scores[static_cast<size_t>(at)] = -1;
  }
  return best;
}

TEST_F(Chunks, AllOfThemAreTheFullCacheBitForBitFromWhateverTier) {
  for (const int64_t tokens : {16, 64, 208}) {
    for (const int64_t layers : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} tokens, {} layers", tokens, layers));
      const auto opened = open_chunked({{"keep", 1}, {"chunk", tokens}, {"layers", layers}}, 1.3, 1.2);
      for (uint64_t i = 0; i < 3; ++i) opened.library->add(fmt::format("{}", i), context(i), static_cast<double>(i));
      std::map<Tier, double> tiers;
      for (uint64_t i = 0; i < 3; ++i) {
        LoadedCache loaded = opened.library->load(fmt::format("{}", i));
        for (const auto& [tier, share] : loaded.tiers) tiers[tier] += share;
        EXPECT_EQ(bits(i, std::move(loaded.cache)), store_cache(read(i, 1), nullptr)) << "context " << i;
      }
      EXPECT_NEAR(tiers[Tier::host] + tiers[Tier::disk] + tiers[Tier::remote], 3, 1e-9);
      for (const auto& [tier, share] : tiers) EXPECT_GT(share, 0);
      expect_within_capacity(*opened.library);
    }
  }
}

TEST_F(Chunks, HoldTheTokensThatAFewHeadsAttendTo) {
  constexpr int64_t kWindow = 8, kChunk = 16;
  const int64_t layers = model_.config().layers;
  ASSERT_GT(layers, 1);
  for (const int64_t together : {int64_t{1}, int64_t{0}}) {
    for (const double keep : {0.0, 0.05, 0.3}) {
      SCOPED_TRACE(fmt::format("{} layers, keep {}", together, keep));
      const auto opened = open_chunked(
          {{"keep", keep}, {"chunk", kChunk}, {"layers", together}, {"window", kWindow}, {"probe_heads", 0.4}}, 9, 9);
      const Prefill prompt = read(0, kWindow);
      const int64_t q_heads = prompt.cache.layers[0].shape().q_heads;
      const auto probes = static_cast<int64_t>(std::ceil(0.4 * static_cast<double>(q_heads)));
      ASSERT_LT(probes, q_heads);
      const auto count = std::max<int64_t>(1, std::llround(keep * kTokens));
      const ChunkedContext divided = divide(prompt, *opened.chunking);
      size_t at = 0;
      const int64_t step = together == 0 ? layers : together;
      for (int64_t first = 0; first < layers; first += step) {
        std::vector<double> scores(kTokens, 0);
        for (int64_t layer = first; layer < first + step; ++layer) {
          const std::vector<double> more = plain_scores(prompt, layer, kWindow, probes);
          for (size_t i = 0; i < scores.size(); ++i) scores[i] += more[i];
        }
        const std::set<int32_t> best = plain_best(scores, count);
        EXPECT_EQ(divided.attended[static_cast<size_t>(first)], std::vector<int32_t>(best.begin(), best.end()));
        for (int64_t begin = 0; begin < kTokens; begin += kChunk, ++at) {
          const int64_t held = std::min(kChunk, kTokens - begin);
          const auto within = std::ranges::count_if(best, [&](int32_t t) { return t >= begin && t < begin + held; });
          const CacheChunk& chunk = divided.chunks.at(at);
          EXPECT_EQ(chunk.first_layer, first);
          EXPECT_EQ(chunk.layers, step);
          EXPECT_EQ(chunk.first_token, begin);
          EXPECT_EQ(chunk.tokens, held);
          EXPECT_DOUBLE_EQ(chunk.importance, static_cast<double>(within) / static_cast<double>(held));
        }
      }
      EXPECT_EQ(at, divided.chunks.size());
    }
  }
}

TEST_F(Chunks, AnswersAreThoseOfTheFullCacheWithoutTheOtherTokens) {
  for (const bool others : {false, true}) {
    const auto opened = open_chunked(
        {{"keep", 0.05}, {"chunk", 16}, {"layers", 1}, {"window", 8}, {"attend_to_others", others}}, 0.3, 0.3);
    for (uint64_t i = 0; i < 4; ++i) opened.library->add(fmt::format("{}", i), context(i), static_cast<double>(i));
    for (uint64_t i = 0; i < 4; ++i) {
      Prefill prompt = read(i, 8);
      const ChunkedContext divided = divide(prompt, *opened.chunking);
      for (size_t layer = 0; layer < prompt.cache.layers.size(); ++layer) {
        EntrySegment& tail = prompt.cache.layers[layer].tail();
        std::vector<int32_t> kept = divided.attended[layer];  // entries lie at their positions
        if (others) {
          kept.clear();
          for (const CacheChunk& chunk : divided.chunks) {
            if (chunk.first_layer != static_cast<int64_t>(layer) || chunk.importance == 0) continue;
            for (int64_t t = 0; t < chunk.tokens; ++t) kept.push_back(static_cast<int32_t>(chunk.first_token + t));
          }
          EXPECT_LT(kept.size(), static_cast<size_t>(kTokens)) << "some chunk is not read";
        }
        tail.keep(std::vector(static_cast<size_t>(tail.shape().kv_heads), kept));
      }
      LoadedCache loaded = opened.library->load(fmt::format("{}", i));
      EXPECT_EQ(loaded.cache.layers[0].tail().positions(0), prompt.cache.layers[0].tail().positions(0));
      EXPECT_EQ(answer(std::move(loaded.cache), this->prompt(i, i)),
                answer(std::move(prompt.cache), this->prompt(i, i)));
    }
  }
}

TEST_F(Chunks, ThoseThatNobodyReadsAreNotUsedAndLeaveFirst) {
  const auto opened = open_chunked({{"keep", 0.03}, {"chunk", 16}, {"window", 8}}, 1.2, 1);
  opened.library->add("0", context(0), 0);
  const ChunkedContext divided = divide(read(0, 8), *opened.chunking);
  const LoadedCache loaded = opened.library->load("0");
  EXPECT_EQ(loaded.tiers, (std::map<Tier, double>{{Tier::host, 1}}));
  opened.library->used("0", 5);
  int64_t bytes = 0;
  for (size_t i = 0; i < divided.chunks.size(); ++i) {
    const storage::Context* stored = opened.library->store().find(object(0, i));
    const bool read = divided.chunks[i].importance > 0;
    EXPECT_EQ(stored->accesses, read ? 2 : 1);
    EXPECT_EQ(stored->last_access, read ? 5 : 0);
    bytes += read ? stored->form(stored->at).bytes : 0;
  }
  EXPECT_EQ(loaded.form.bytes, bytes);
  EXPECT_EQ(opened.library->stored("0").size(), divided.chunks.size());

  opened.library->add("1", context(1), 6);
  int64_t below = 0;
  for (const char* key : {"0", "1"}) {
    for (const storage::Context* stored : opened.library->stored(key)) {
      EXPECT_TRUE(stored->at.tier == 0 || stored->importance == 0) << "what requests need stays in memory";
      below += stored->at.tier;
    }
  }
  EXPECT_GT(below, 0);
}

TEST_F(Chunks, OneThatIsDamagedCostsTheContextAndIsStoredAgain) {
  const auto opened = open_chunked({{"keep", 0.03}, {"chunk", 16}, {"window", 8}}, 0, 10);
  opened.library->add("0", context(0), 0);
  const ChunkedContext divided = divide(read(0, 8), *opened.chunking);
  const auto damage = [&](bool read) {
    for (size_t i = divided.chunks.size(); i-- > 0;) {
      if ((divided.chunks[i].importance > 0) != read) continue;
      std::ofstream(opened.library->store().folder()->file_of(object(0, i)), std::ios::binary | std::ios::in) << "xxxx";
      return;
    }
    FAIL() << "no such chunk";
  };
  damage(/*read=*/false);
  const auto intact = bits(0, opened.library->load("0").cache);
  EXPECT_EQ(opened.library->recomputed(), 0) << "nobody reads it";
  damage(/*read=*/true);
  LoadedCache loaded = opened.library->load("0");
  EXPECT_TRUE(loaded.tiers.empty());
  EXPECT_EQ(bits(0, std::move(loaded.cache)), store_cache(read(0, 1), nullptr)) << "computed anew";
  opened.library->used("0", 1);
  EXPECT_EQ(bits(0, opened.library->load("0").cache), intact);
  EXPECT_EQ(opened.library->recomputed(), 1);
}

}  // namespace
}  // namespace kvarena::stored
