// CaM: merges by hand, and positions and logits restated in float64 (tests/golden/merging_methods.py).

#include "tests/methods/compression/merged_entries.h"
#include "tests/methods/compression/observed_layer.h"

namespace kvarena {
namespace {

using testing::kObservedDim;
using testing::padded;

/// A decode step over a cache of sinks 0, 1 and recent 2, 3 whose queries see every entry alike or skip entry 2.
float cam_gain(bool skips, int64_t merge) {
  KvCache cache(1, {.q_heads = 1, .kv_heads = 1, .head_dim = kObservedDim, .dtype = DType::f32});
  Activity activity;
  LayerContext context{.layer = 0, .layers = 1, .cache = cache.layers[0], .activity = activity, .prompt_tokens = 4};
  const std::vector<float> keys = padded({0, 0, skips ? -99.0F : 0.0F, 0, 0}, 1);
  const std::vector<float> values = padded({0, 0, 6, 1, 1}, 1);
  cache.layers[0].append(keys.data(), values.data(), 4, kObservedDim, 0);
  const auto method = make_method({{"name", "cam"}, {"tokens", 4}, {"merge", merge}}, "test");
  method->compress_all({&context, 1}, std::vector<LayerObservations>(1));
  cache.layers[0].append(keys.data() + 4 * kObservedDim, values.data() + 4 * kObservedDim, 1, kObservedDim, 4);
  const std::vector<float> q = padded({10}, 1);
  const LayerQueries queries{.q = q.data(), .q_len = 1, .q_stride = kObservedDim, .position = 4};
  const float lse = std::log(skips ? 4.0F : 5.0F);
  method->observe(context, queries, &lse);
  method->after_append(context);
  EXPECT_EQ(cache.layers[0].tail().positions(0), (std::vector<int32_t>{0, 1, 3, 4}));
  std::vector<float> left(4 * kObservedDim);
  cache.layers[0].tail().read(0, nullptr, left.data());
  return left[2 * kObservedDim] - 1;  // of entry 3
}

TEST(Cam, AnEntryAsAttendedAsItsSuccessorsIsMergedAndAnIgnoredOneIsNot) {
  EXPECT_NEAR(cam_gain(/*skips=*/false, 2), 3, 1e-6);
  EXPECT_NEAR(cam_gain(/*skips=*/false, 3), 2, 1e-6);  // M divides also where fewer successors are left
  EXPECT_NEAR(cam_gain(/*skips=*/true, 2), 0, 1e-6);
}

TEST(Cam, MergesAndPredictsAsRestated) { testing::expect_golden_merges("cam"); }

}  // namespace
}  // namespace kvarena
