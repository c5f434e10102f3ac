#include "harness/cache/layer_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "harness/cache/attend_plan.h"
#include "harness/cache/gathered_segment.h"
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
    kvarena::attend(layer.plan(queries), state);
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

/// Attention of `q_len` queries from `position` on, and the probabilities that each entry of a segment received.
struct Attended {
  std::vector<float> out;
  std::vector<float> lse;
};
Attended attend(const LayerShape& shape, const AttentionPlan& plan) {
  const int64_t q_len = plan.queries.q_len, rows = q_len * shape.q_heads;
  Attended result{.out = std::vector<float>(rows * shape.head_dim), .lse = std::vector<float>(rows)};
  std::vector<float> max(rows);
  std::vector<float> sum(rows);
  kernels::AttentionState state{.out = result.out.data(), .max = max.data(), .sum = sum.data()};
  kernels::init_attention(state, q_len, shape.q_heads, shape.head_dim, shape.sinks);
  kvarena::attend(plan, state);
  kernels::finish_attention(state, q_len, shape.q_heads, shape.head_dim, result.lse.data());
  return result;
}
AttentionPlan plan_at(const LayerCache& layer, const std::vector<float>& q, int64_t q_len, int64_t position) {
  const int64_t row = layer.shape().q_heads * layer.shape().head_dim;
  return layer.plan({.q = q.data(), .q_len = q_len, .q_stride = row, .position = position});
}
Attended attend(const LayerCache& layer, const std::vector<float>& q, int64_t q_len, int64_t position) {
  return attend(layer.shape(), plan_at(layer, q, q_len, position));
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << i;
}

/// Copies of an entry are one entry under the log of their number, in a view beside others and in what clones share.
TEST(LayerCache, AnEntryUnderABiasStandsForSeveral) {
  LayerShape shape = kShape;
  shape.dtype = DType::f32;
  const auto rows = random_floats(3 * 32, "rows");
  const auto q = random_floats(64, "q");
  const auto ledger = std::make_shared<MemoryLedger>();
  LayerCache copies(shape, ledger);
  for (const int64_t row : {0, 1, 1, 1, 2}) copies.append(&rows[row * 32], &rows[row * 32], 1, 32, copies.entries(0));
  const Attended expected = attend(copies, q, 1, 4);

  LayerCache layer(shape, ledger);
  layer.append(rows.data(), rows.data(), 1, 32, 0);
  EntrySegment others(shape, ledger);
  for (int64_t head = 0; head < 2; ++head) {
    others.append_to_head(head, std::vector<int32_t>(2, kNoPosition), &rows[32 + head * 16], &rows[32 + head * 16], 32);
  }
  const std::vector<std::vector<int32_t>> both(2, {0, 1}), own(2, {0});
  const std::vector<std::vector<float>> biases(2, {std::log(3.0F), 0.0F});
  layer.view = std::make_unique<ConcatView>(std::make_unique<IndexedSegment>(layer.tail(), own, ledger),
                                            std::make_unique<IndexedSegment>(others, both, ledger, biases));
  const int64_t lists = 2 * 3 * static_cast<int64_t>(sizeof(int32_t)) + 4 * static_cast<int64_t>(sizeof(float));
  EXPECT_EQ(layer.view->bytes(), lists);
  for (int round = 0; round < 2; ++round) {
    const Attended found = attend(layer, q, 1, 4);
    expect_near(found.out, expected.out);
    expect_near(found.lse, expected.lse);
    const AttentionPlan plan = layer.plan({.q = q.data(), .q_len = 1, .q_stride = 64, .position = 4});
    std::vector<float> sums(4 * 3);
    add_probabilities(plan, found.lse.data(), sums.data(), 3);
    for (size_t head = 0; head < 4; ++head) {
      EXPECT_NEAR(sums[head * 3] + sums[head * 3 + 1] + sums[head * 3 + 2], 1, 1e-5);
    }
    EXPECT_EQ(positions_of(plan.items[1], 0), std::vector<int32_t>());
    layer.view = layer.view->clone(ledger);
  }
}

/// In a dense run and in one with gaps, of which a window sees the newest.
TEST(LayerCache, EveryEntryOfASegmentMayHaveABias) {
  constexpr int64_t n = 70, window = 30;
  const auto rows = random_floats(n * 32, "rows");
  const auto q = random_floats(64, "q");
  const auto biases = random_floats(n, "biases");
  const auto ledger = std::make_shared<MemoryLedger>();
  LayerCache all(kShape, ledger);
  all.append(rows.data(), rows.data(), n, 32, 0);
  std::vector<int32_t> newest(window);
  std::iota(newest.begin(), newest.end(), n - window);
  all.view = std::make_unique<IndexedSegment>(all.tail(), std::vector(2, newest), ledger,
                                              std::vector(2, std::vector<float>(biases.end() - window, biases.end())));
  const Attended expected = attend(all, q, 1, n - 1);

  LayerShape shape = kShape;
  shape.window = window;
  LayerCache windowed(shape, ledger);
  windowed.append(rows.data(), rows.data(), n, 32, 0);
  for (const bool ragged : {false, true}) {
    std::vector<int32_t> every(n);
    std::iota(every.begin(), every.end(), 0);
    if (ragged) windowed.tail().keep(std::vector(2, every));
    AttentionPlan plan = plan_at(windowed, q, 1, n - 1);
    ASSERT_EQ(plan.items.size(), 1U);
    ASSERT_EQ(plan.items[0].sees.rule == Visibility::Rule::positions, ragged);
    plan.items[0].biases.assign(2, biases);
    const Attended found = attend(shape, plan);
    expect_near(found.out, expected.out);
    expect_near(found.lse, expected.lse);
  }
}

/// Entries in a window do not depend on how they are stored: in one dense run, cut into segments, or ragged.
void expect_same_in_any_storage(const LayerShape& shape) {
  const int64_t n = 70;
  const int64_t q_len = 3;
  const auto keys = random_floats(n * 32, "keys");
  const auto values = random_floats(n * 32, "values");
  const auto q = random_floats(q_len * 64, "q");
  const auto ledger = std::make_shared<MemoryLedger>();
  LayerCache dense(shape, ledger);
  dense.append(keys.data(), values.data(), n, 32, 0);

  LayerCache cut(shape, ledger);
  cut.append(keys.data() + 56 * 32, values.data() + 56 * 32, n - 56, 32, 56);
  auto front = std::make_unique<EntrySegment>(shape, ledger);
  front->append(keys.data(), values.data(), 56, 32, 0);
  cut.insert_before_tail(std::move(front));

  LayerCache ragged = dense.clone(ledger);
  std::vector<std::vector<int32_t>> kept(2);  // what is out of sight may be gone, by head, and nothing else
  for (int32_t i = 0; i < n; ++i) {
    if (i >= 45 || i % 3 == 0) kept[0].push_back(i);
    if (i >= 45) kept[1].push_back(i);
  }
  ragged.tail().keep(kept);

  const Attended expected = attend(dense, q, q_len, n - q_len);
  for (const LayerCache* other : {&cut, &ragged}) {
    const Attended found = attend(*other, q, q_len, n - q_len);
    expect_near(found.out, expected.out);
    expect_near(found.lse, expected.lse);
  }
  const LayerQueries queries{.q = q.data(), .q_len = q_len, .q_stride = 64, .position = n - q_len};
  std::vector<float> sums(4 * n);
  std::vector<float> ragged_sums(4 * n);
  add_probabilities(dense.tail().plan_newest(queries), expected.lse.data(), sums.data(), n);
  add_probabilities(ragged.tail().plan_newest(queries), expected.lse.data(), ragged_sums.data(), n);
  for (int64_t h = 0; h < 4; ++h) {
    for (size_t i = 0; i < kept[h / 2].size(); ++i) {
      EXPECT_NEAR(ragged_sums[h * n + static_cast<int64_t>(i)], sums[h * n + kept[h / 2][i]], 1e-6);
    }
  }
}

TEST(LayerCache, ASlidingWindowCountsPositionsWhateverTheStorage) {
  LayerShape shape = kShape;
  shape.dtype = DType::f32;
  shape.window = 20;
  expect_same_in_any_storage(shape);
}

/// Queries 67 and 68 see the entries from 46 on, and 69 itself alone.
TEST(LayerCache, AChunkedWindowCountsPositionsWhateverTheStorage) {
  LayerShape shape = kShape;
  shape.dtype = DType::f32;
  shape.window = 23;
  shape.chunked = true;
  expect_same_in_any_storage(shape);
}

/// A learned sink takes what is missing from the probabilities of the entries.
TEST(LayerCache, ProbabilitiesAndSinksAddUpToOne) {
  const std::vector<float> sinks{-1.0F, 0.0F, 1.0F, 4.0F};
  LayerShape shape = kShape;
  shape.dtype = DType::f32;
  shape.sinks = sinks.data();
  LayerCache layer(shape, std::make_shared<MemoryLedger>());
  const auto rows = random_floats(40 * 32, "rows");
  const auto q = random_floats(2 * 64, "q");
  layer.append(rows.data(), rows.data(), 40, 32, 0);
  const Attended found = attend(layer, q, 2, 38);
  std::vector<float> sums(4 * 40);
  add_probabilities(layer.tail().plan_newest({.q = q.data(), .q_len = 2, .q_stride = 64, .position = 38}),
                    found.lse.data(), sums.data(), 40);
  for (size_t h = 0; h < 4; ++h) {
    double total =
        std::exp(double{sinks[h]} - double{found.lse[h]}) + std::exp(double{sinks[h]} - double{found.lse[4 + h]});
    for (size_t i = 0; i < 40; ++i) total += double{sums[h * 40 + i]};
    EXPECT_NEAR(total, 2, 1e-5) << h;
  }
}

}  // namespace
}  // namespace kvarena
