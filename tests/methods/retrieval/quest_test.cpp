// Quest's pages: the hand example of its definition, budgets, and the newest page.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/cache/indexed_segment.h"
#include "harness/method/registry.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::random_floats;

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::f32};

struct Request {
  Request(const json& spec, int64_t n, uint64_t seed) : method(make_method(spec, "test")), cache(1, kShape), n(n) {
    keys = random_floats(n * 32, "keys", seed);
    cache.layers[0].append(keys.data(), keys.data(), n, 32, 0);
    cache.length = n;
    LayerContext context = view();
    method->compress(context, {});
  }
  [[nodiscard]] LayerContext view() {
    return {.layer = 0, .layers = 1, .cache = cache.layers[0], .activity = activity, .prompt_tokens = n};
  }
  /// The view chosen for a query, or null when everything is attended.
  const IndexedSegment* select(const std::vector<float>& q) {
    cache.layers[0].view.reset();
    LayerContext context = view();
    method->select(context, {.q = q.data(), .q_len = 1, .q_stride = 64, .position = n - 1});
    return dynamic_cast<const IndexedSegment*>(cache.layers[0].view.get());
  }

  std::unique_ptr<Method> method;
  KvCache cache;
  std::vector<float> keys;  // [n, 2, 16]
  int64_t n;
  Activity activity;
};

json quest(int64_t tokens) { return {{"name", "quest"}, {"tokens", tokens}, {"dense_layers", 0}}; }

/// U(page) by the formula, in double: the best of the group's heads.
double bound(const Request& request, const std::vector<float>& q, int64_t kv_head, int64_t page) {
  double best = -1e300;
  for (int64_t head = kv_head * 2; head < kv_head * 2 + 2; ++head) {
    double total = 0;
    for (int64_t c = 0; c < 16; ++c) {
      float low = 1e9F;
      float high = -1e9F;
      for (int64_t i = page * 16; i < std::min(request.n, page * 16 + 16); ++i) {
        low = std::min(low, request.keys[i * 32 + kv_head * 16 + c]);
        high = std::max(high, request.keys[i * 32 + kv_head * 16 + c]);
      }
      const double x = q[head * 16 + c];
      total += std::max(x * low, x * high);
    }
    best = std::max(best, total);
  }
  return best;
}

TEST(QuestSelect, TakesTheNewestPageAndTheLargestBounds) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Request request(quest(80), 333, seed);  // 21 pages, the last one partial; 5 are attended
    const auto q = random_floats(64, "q", seed);
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 2; ++head) {
      std::vector<std::pair<double, int64_t>> ranked;
      for (int64_t page = 0; page < 20; ++page) ranked.emplace_back(-bound(request, q, head, page), page);
      std::ranges::sort(ranked);
      std::vector<int32_t> expected;
      for (int64_t i = 0; i < 4; ++i) {
        for (int64_t e = 0; e < 16; ++e) expected.push_back(static_cast<int32_t>(ranked[i].second * 16 + e));
      }
      for (int32_t e = 320; e < 333; ++e) expected.push_back(e);
      std::ranges::sort(expected);
      EXPECT_EQ(view->positions(head), expected) << "seed " << seed;
    }
  }
}

TEST(QuestSelect, AtLeastThreePagesWhateverTheBudget) {
  Request request(quest(16), 200, 3);
  EXPECT_EQ(request.select(random_floats(64, "q"))->entries(0), 16 + 16 + 8);
}

TEST(QuestSelect, ABudgetThatCoversEverythingSelectsNothing) {
  Request request(quest(200), 200, 3);
  EXPECT_EQ(request.select(random_floats(64, "q")), nullptr);
  EXPECT_EQ(request.activity.entries_skipped, 0);
}

TEST(QuestSelect, CanSelectForEachQueryHead) {
  json spec = quest(64);
  spec["gqa"] = "none";
  Request request(spec, 400, 9);
  const IndexedSegment* view = request.select(random_floats(64, "q"));
  ASSERT_NE(view, nullptr);
  EXPECT_NE(std::vector<int32_t>(view->selected(0).begin(), view->selected(0).end()),
            std::vector<int32_t>(view->selected(1).begin(), view->selected(1).end()));
}

TEST(QuestIndex, TakesOneEntryAPage) {
  // Two float32 bounds a channel and page of 16 entries of two float32 numbers a channel: one sixteenth.
  Request request(quest(64), 512, 1);
  EXPECT_EQ(request.cache.bytes(), 512 * kShape.entry_bytes() * 17 / 16);
}

}  // namespace
}  // namespace kvarena
