// Attention that a layer view computes itself against the cache's own, in layers with sinks and windows.

#include "harness/method/layer_view.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "harness/cache/attend_plan.h"
#include "harness/method/entry_scores.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using testing::random_floats;

constexpr int64_t kEntries = 50, kQueries = 6;
const std::vector<float> kSinks{-1.0F, 0.5F, 2.0F, 4.0F};

/// A layer of 50 entries whose last six queries were seen.
struct SeenLayer {
  explicit SeenLayer(const LayerShape& shape) : cache(shape, std::make_shared<MemoryLedger>()) {
    const auto rows = random_floats(kEntries * 32, "rows");
    cache.append(rows.data(), rows.data(), kEntries, 32, 0);
    seen.entries = kEntries;
    seen.window = kQueries;
    seen.window_queries = random_floats(kQueries * 64, "queries");
    const LayerQueries queries{
        .q = seen.window_queries.data(), .q_len = kQueries, .q_stride = 64, .position = kEntries - kQueries};
    std::vector<float> out(kQueries * 64), max(kQueries * 4), sum(kQueries * 4);
    seen.window_lse.resize(kQueries * 4);
    kernels::AttentionState state{.out = out.data(), .max = max.data(), .sum = sum.data()};
    kernels::init_attention(state, kQueries, 4, 16, shape.sinks);
    attend(cache.plan(queries), state);
    kernels::finish_attention(state, kQueries, 4, 16, seen.window_lse.data());
  }

  LayerCache cache;
  LayerObservations seen;
  Activity activity;
  LayerContext context{.layer = 0, .layers = 1, .cache = cache, .activity = activity, .prompt_tokens = kEntries};
};

/// A part that holds every entry is computed by the view, the whole by the cache.
void expect_equal_ways(const LayerShape& shape) {
  SeenLayer layer(shape);
  const LayerView view(layer.context, &layer.seen);
  std::vector<int32_t> all(kEntries);
  std::iota(all.begin(), all.end(), 0);
  const at::Tensor whole = view.window_attention(kQueries);
  EXPECT_TRUE(at::allclose(view.part({all, all}).window_attention(kQueries), whole, 1e-5, 1e-6));
  const double missing = kQueries * 4 - whole.sum().item<double>();
  if (shape.sinks == nullptr) {
    EXPECT_NEAR(missing, 0, 1e-4);
  } else {
    EXPECT_GT(missing, 1);
  }
}

TEST(LayerView, OwnAttentionIsThatOfTheCache) {
  LayerShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::f32};
  expect_equal_ways(shape);
  shape.sinks = kSinks.data();
  expect_equal_ways(shape);
  shape.window = 16;  // queries 44 to 49: of windows, and of chunks that end with 47
  expect_equal_ways(shape);
  shape.chunked = true;
  expect_equal_ways(shape);
}

TEST(AttentionRows, LeaveASinkItsShare) {
  const LayerShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .sinks = kSinks.data()};
  std::vector<float> scores{0, 0, 4, 8};  // of heads 2 and 3, before the factor 1 / 4
  attention_rows(scores, shape, 1);
  const double first = 2 + std::exp(2.0), second = std::exp(1.0) + std::exp(2.0) + std::exp(4.0);
  EXPECT_NEAR(scores[0], 1 / first, 1e-6);
  EXPECT_NEAR(scores[2], std::exp(1.0) / second, 1e-6);
  EXPECT_NEAR(scores[3], std::exp(2.0) / second, 1e-6);
}

}  // namespace
}  // namespace kvarena
