#include "harness/cache/layer_cache.h"

#include <gtest/gtest.h>

#include "harness/cache/indexed_segment.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using testing::random_floats;

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::bf16};

class CountingIndex final : public LayerIndex {
 public:
  [[nodiscard]] int64_t bytes() const override { return 128; }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr&) const override {
    return std::make_unique<CountingIndex>();
  }
};

void append(KvCache& cache, int64_t n) {
  const auto rows = random_floats(n * 32, "rows");
  for (LayerCache& layer : cache.layers) layer.append(rows.data(), rows.data(), n, 32, cache.length);
  cache.length += n;
}

TEST(KvCache, CountsAllLayersAndTheirIndexes) {
  KvCache cache(3, kShape);
  append(cache, 48);
  EXPECT_EQ(cache.bytes(), 3 * 48 * kShape.entry_bytes());
  EXPECT_EQ(cache.bytes(), cache.ledger->current());
  cache.layers[1].index = std::make_unique<CountingIndex>();
  EXPECT_EQ(cache.bytes(), 3 * 48 * kShape.entry_bytes() + 128);
}

TEST(KvCache, RollBackLeavesTheBytesOfNeverHavingDrafted) {
  KvCache cache(2, kShape);
  append(cache, 64);
  const int64_t before = cache.bytes();
  append(cache, 25);
  cache.truncate(64);
  EXPECT_EQ(cache.bytes(), before);
  EXPECT_EQ(cache.length, 64);
  EXPECT_EQ(cache.layers[1].entries(1), 64);
}

TEST(KvCache, CloneCarriesLengthAndIndex) {
  KvCache cache(2, kShape);
  append(cache, 10);
  cache.layers[0].index = std::make_unique<CountingIndex>();
  cache.layers[0].index->entries = 10;
  const KvCache copy = cache.clone();
  EXPECT_EQ(copy.length, 10);
  ASSERT_NE(copy.layers[0].index, nullptr);
  EXPECT_EQ(copy.layers[0].index->entries, 10);
  EXPECT_NE(copy.ledger, cache.ledger);
}

TEST(LayerCache, AViewReplacesTheSegmentsWhileItIsSet) {
  KvCache cache(1, kShape);
  append(cache, 32);
  LayerCache& layer = cache.layers[0];
  const auto q = random_floats(4 * 16, "q");
  const LayerQueries queries{.q = q.data(), .q_len = 1, .q_stride = 64};
  const auto attend = [&] {
    std::vector<float> out(64);
    std::vector<float> max(4);
    std::vector<float> sum(4);
    kernels::AttentionState state{.out = out.data(), .max = max.data(), .sum = sum.data()};
    kernels::init_attention(state, 1, 4, 16);
    layer.attend(queries, state);
    kernels::finish_attention(state, 1, 4, 16, nullptr);
    return out;
  };
  const auto all = attend();
  layer.view =
      std::make_unique<IndexedSegment>(layer.tail(), std::vector<std::vector<int32_t>>{{1, 2}, {3, 4}}, layer.ledger());
  EXPECT_NE(attend(), all);
  layer.view.reset();
  EXPECT_EQ(attend(), all);
}

}  // namespace
}  // namespace kvarena
