#include "harness/cache/quantized_segment.h"

#include <gtest/gtest.h>

#include <numeric>

#include "harness/cache/attend_plan.h"
#include "harness/cache/overlay_view.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using testing::random_floats;

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::f32};
const QuantizedFormat kEightBits{.keys = {.bits = 8, .group_size = 16}, .values = {.bits = 8, .group_size = 16}};

/// A layer of 40 entries from `position` on, 32 of them packed.
LayerCache packed_layer(int64_t position) {
  LayerCache layer(kShape, std::make_shared<MemoryLedger>());
  const auto rows = random_floats(40 * 32, "rows");
  layer.append(rows.data(), rows.data(), 40, 32, position);
  layer.insert_packed(std::make_unique<QuantizedSegment>(kShape, kEightBits, layer.ledger()));
  for (int i = 0; i < 2; ++i) layer.packed().front()->take(layer.tail(), 16);
  return layer;
}

TEST(QuantizedSegment, PositionsThatFollowEachOtherCostNothingWhereverTheyBegin) {
  const LayerCache first = packed_layer(0), later = packed_layer(1000);
  std::vector<int32_t> expected(32);
  std::iota(expected.begin(), expected.end(), 1000);
  EXPECT_EQ(later.packed().front()->positions(1), expected);
  EXPECT_EQ(later.packed().front()->bytes(), first.packed().front()->bytes());
}

/// A copy elsewhere that says of query head h and the i-th entry in its list: 100 (h + 1) + i.
class Numbered final : public EntryMirror {
 public:
  bool add_probabilities(const AttentionItem& item, const LayerQueries& /*queries*/, const float* /*lse*/, float* sums,
                         int64_t row_stride) override {
    for (int64_t h = 0; h < kShape.q_heads; ++h) {
      const int64_t held = item.from->entries(h / kShape.group());
      for (int64_t i = 0; i < held; ++i) sums[h * row_stride + i] += static_cast<float>(100 * (h + 1) + i);
    }
    return true;
  }
};

/// Exact entries stand under the columns of those that they replace, each kv head's under its own.
TEST(OverlayView, WhatACopyElsewhereAddsStandsUnderTheReplacedEntries) {
  const LayerCache layer = packed_layer(0);
  const EntryLists replaced = {{0, 5, 17}, {2, 3, 20, 31}};
  EntrySegment exact(kShape, layer.ledger());
  const auto rows = random_floats(4 * 16, "exact");
  for (int64_t head = 0; head < 2; ++head) exact.append_to_head(head, replaced[head], rows.data(), rows.data(), 16);
  Numbered mirror;
  exact.use_mirror(&mirror);
  const OverlayView view(layer, replaced, exact);
  const auto q = random_floats(64, "q");
  const std::vector<float> lse(4, 1e9F);  // all other probabilities are 0
  std::vector<float> sums(4 * 40), expected(4 * 40);
  add_probabilities(plan_of(view, {.q = q.data(), .q_len = 1, .q_stride = 64, .position = 39}), lse.data(), sums.data(),
                    40);
  for (int64_t h = 0; h < 4; ++h) {
    const auto& list = replaced[h / 2];
    for (size_t i = 0; i < list.size(); ++i) expected[h * 40 + list[i]] = static_cast<float>(100 * (h + 1) + i);
  }
  EXPECT_EQ(sums, expected);
}

}  // namespace
}  // namespace kvarena
