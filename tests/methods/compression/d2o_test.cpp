// D2O: merges by hand, and positions and logits restated in float64 (tests/golden/merging_methods.py).

#include "tests/methods/compression/merged_entries.h"
#include "tests/methods/compression/observed_layer.h"

namespace kvarena {
namespace {

using testing::kObservedDim;
using testing::padded;

/// A head of six entries, the first four of them sinks: entry 4 leaves for entry 5.
struct SixEntries {
  /// `leaving` is the cosine of the keys of entries 4 and 5; the sinks' keys are square to both.
  explicit SixEntries(float leaving)
      : cache(1, {.q_heads = 1, .kv_heads = 1, .head_dim = kObservedDim, .dtype = DType::f32}),
        context{.layer = 0, .layers = 1, .cache = cache.layers[0], .activity = activity, .prompt_tokens = 6} {
    for (int i = 0; i < 4; ++i) append({0, 0, 0, 1}, 9);
    append(at_cosine(leaving), 2);
    append({1, 0, 0, 0}, 4);
    method->compress_all({&context, 1},
                         std::vector<LayerObservations>{{.entries = 6, .prompt_attention = {1, 1, 1, 1, 0, 1}}});
  }
  static std::vector<float> at_cosine(float cosine) { return {cosine, std::sqrt(1 - cosine * cosine), 0, 0}; }
  void append(const std::vector<float>& key, float value) {
    const std::vector<float> values(kObservedDim, value);
    cache.layers[0].append(padded(key, 4).data(), values.data(), 1, kObservedDim, position++);
  }
  /// First channel of each value held.
  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> all(static_cast<size_t>(kObservedDim * cache.layers[0].tail().entries(0)));
    cache.layers[0].tail().read(0, nullptr, all.data());
    std::vector<float> first;
    for (size_t i = 0; i < all.size(); i += kObservedDim) first.push_back(all[i]);
    return first;
  }

  std::unique_ptr<Method> method = make_method({{"name", "d2o"}, {"tokens", 5}, {"recent_share", 0.2}}, "test");
  Activity activity;
  KvCache cache;
  LayerContext context;
  int64_t position = 0;
};

TEST(D2o, AnEvictedEntryLikeAKeptOneIsAveragedIntoIt) {
  EXPECT_EQ(SixEntries(1).values(), (std::vector<float>{9, 9, 9, 9, 3}));
  const std::vector<float> half = SixEntries(0.5F).values();
  EXPECT_NEAR(half[4], (4 + 0.5 * 2) / 2, 1e-6);  // the cosine is the weight
}

TEST(D2o, TheThresholdFollowsTheMeanSimilarity) {
  // First mean .8: tau .8. Then .6: tau .7, too unlike; or .9: tau .85, alike enough.
  for (const auto& [cosine, merged] : {std::pair{0.6F, false}, std::pair{0.9F, true}}) {
    SixEntries six(0.8F);
    // Entry 5 leaves for the newest, whose key lies at this cosine to the merged key.
    std::vector<float> keys(5 * kObservedDim);
    six.cache.layers[0].tail().read(0, keys.data(), nullptr);
    const float length = std::hypot(keys[4 * kObservedDim], keys[4 * kObservedDim + 1]);
    const float x = keys[4 * kObservedDim] / length;
    const float y = keys[4 * kObservedDim + 1] / length;
    EXPECT_NEAR(x, (1 + 0.8 * 0.8) / std::hypot(1.64, 0.48), 1e-5);
    const float sine = std::sqrt(1 - cosine * cosine);
    six.append({x * cosine - y * sine, y * cosine + x * sine, 0, 0}, 100);
    six.method->after_append(six.context);
    EXPECT_EQ(six.cache.layers[0].tail().positions(0), (std::vector<int32_t>{0, 1, 2, 3, 6}));
    EXPECT_EQ(six.values()[4] != 100.0F, merged) << "cosine " << cosine;
  }
}

TEST(D2o, LayersOfEqualAttentionShareEqually) {
  KvCache cache(8, {.q_heads = 1, .kv_heads = 1, .head_dim = kObservedDim, .dtype = DType::f32});
  Activity activity;
  std::vector<LayerContext> layers;
  std::vector<LayerObservations> seen(8, {.entries = 20, .prompt_attention = std::vector<float>(20, 1.0F)});
  const std::vector<float> rows(20 * kObservedDim, 1.0F);
  for (int64_t l = 0; l < 8; ++l) {
    cache.layers[l].append(rows.data(), rows.data(), 20, kObservedDim, 0);
    layers.push_back({.layer = l, .layers = 8, .cache = cache.layers[l], .activity = activity, .prompt_tokens = 20});
  }
  make_method({{"name", "d2o"}, {"keep", 0.5}}, "test")->compress_all(layers, seen);
  std::vector<int64_t> sizes;
  for (const LayerCache& layer : cache.layers) sizes.push_back(layer.tail().entries(0));
  EXPECT_EQ(sizes, (std::vector<int64_t>{20, 20, 10, 10, 10, 10, 10, 20}));
}

TEST(D2o, MergesAndPredictsAsRestated) { testing::expect_golden_merges("d2o"); }

}  // namespace
}  // namespace kvarena
