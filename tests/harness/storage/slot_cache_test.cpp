// Slots against a layer that never left the device: the same entries in the same order, and of a step's choice only the
// difference moves.

#include "harness/storage/slot_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "harness/cache/attend_plan.h"
#include "harness/cache/indexed_segment.h"
#include "harness/core/error.h"
#include "harness/core/random.h"
#include "tests/support/random_entries.h"

namespace kvarena::storage {
namespace {

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::bf16};
constexpr int64_t kRowBytes = 2 * 16 * 2;
using Lists = SlotCache::Lists;

HierarchyPtr machine() {
  return std::make_shared<const Hierarchy>(std::vector<TierSettings>{{.tier = Tier::host, .link = {.name = "real"}}});
}

/// Attention of one query over a segment, un-normalised: the bits depend on the order of its entries.
std::vector<float> attended(const Segment& segment) {
  const auto q = testing::random_floats(4 * 16, "query");
  std::vector<float> out(4 * 16), max(4), sum(4);
  kernels::AttentionState state{out.data(), max.data(), sum.data()};
  kernels::init_attention(state, 1, 4, 16);
  attend(plan_of(segment, {.q = q.data(), .q_len = 1, .q_stride = 4 * 16}), state);
  out.insert(out.end(), sum.begin(), sum.end());
  return out;
}

/// Two layers with equal tokens: one on the device, one behind it.
struct Pair {
  Pair(int64_t n, bool elastic, uint64_t seed, int64_t lists = 2)
      : cache(1, kShape),
        whole(kShape, cache.ledger),
        tail(kShape, cache.ledger),
        slots(kShape, cache.ledger, machine(), {.elastic = elastic}),
        draws(seed, "chosen"),
        lists(lists) {
    append(n);
    slots.offload(tail);
  }
  void append(int64_t count) {
    const auto rows = testing::random_floats(2 * count * 32, "rows", static_cast<uint64_t>(length));
    for (EntrySegment* segment : {&whole, &tail})
      segment->append(rows.data(), rows.data() + count * 32, count, 32, length);
    length += count;
  }
  /// Ascending positions below the newest, a few of the last choice exchanged, and the newest.
  Lists choose(int64_t budget) {
    Lists chosen;
    for (int64_t list = 0; list < lists; ++list) {
      std::set<int32_t> own;
      if (static_cast<int64_t>(last.size()) == lists) {
        for (const int32_t position : last[list]) {
          if (draws.below(10, next++) > 2) own.insert(position);
        }
      }
      while (static_cast<int64_t>(own.size()) > budget - 1) own.erase(own.begin());
      while (static_cast<int64_t>(own.size()) < budget - 1) {
        own.insert(static_cast<int32_t>(draws.below(static_cast<uint64_t>(length - 1), next++)));
      }
      own.insert(static_cast<int32_t>(length - 1));
      chosen.emplace_back(own.begin(), own.end());
    }
    return chosen;
  }
  /// A step; returns the bytes that it loaded.
  int64_t step(int64_t budget) {
    ++length;
    const Lists chosen = choose(budget);
    --length;
    slots.prefetch(chosen);
    append(1);
    const auto view = slots.arrive(tail);
    const IndexedSegment expected(whole, chosen, cache.ledger);
    for (int64_t head = 0; head < 2; ++head) {
      EXPECT_EQ(view->positions(head), expected.positions(head));
      const auto count = static_cast<size_t>(expected.entries(head) * 16);
      std::vector<float> keys(count);
      std::vector<float> values(count);
      std::vector<float> own_keys(count);
      std::vector<float> own_values(count);
      expected.read(head, keys.data(), values.data());
      view->read(head, own_keys.data(), own_values.data());
      EXPECT_EQ(own_keys, keys);
      EXPECT_EQ(own_values, values);
    }
    EXPECT_EQ(attended(*view), attended(expected));
    slots.offload(tail);
    last = chosen;
    return slots.loaded().loaded_bytes;
  }

  /// A step whose view is asked for before its entry is there; returns the bytes that it loaded.
  int64_t step_ahead(int64_t budget) {
    ++length;
    const Lists chosen = choose(budget);
    --length;
    slots.prefetch(chosen);
    const auto view = slots.arrive(tail);
    const AttentionPlan plan = plan_of(*view, {});
    for (size_t head = 0; head < 2; ++head) {
      EXPECT_EQ(plan.items.front().runs[head].entries, budget - 1);
      EXPECT_EQ(plan.items.front().lists[head].back(), budget - 1) << "the slot behind the others";
    }
    append(1);
    slots.offload(tail);
    last = chosen;
    return slots.loaded().loaded_bytes;
  }

  KvCache cache;
  EntrySegment whole;
  EntrySegment tail;
  SlotCache slots;
  RandomStream draws;
  int64_t lists;
  int64_t length = 0;
  Lists last;
  uint64_t next = 0;
};

TEST(SlotCache, MovesTheDifferenceAlone) {
  constexpr int64_t kBudget = 20;
  Pair elastic(100, true, 3);
  Pair reloading(100, false, 3);
  EXPECT_EQ(elastic.step(kBudget), 2 * (kBudget - 1) * kRowBytes) << "the newest comes with the tail";
  EXPECT_EQ(reloading.step(kBudget), 2 * (kBudget - 1) * kRowBytes);
  for (int step = 0; step < 30; ++step) {
    const Lists before = elastic.last;
    const int64_t moved = elastic.step(kBudget);
    int64_t fresh = 0;
    for (size_t head = 0; head < 2; ++head) {
      for (const int32_t position : elastic.last[head]) {
        if (position != elastic.length - 1 && !std::ranges::binary_search(before[head], position)) ++fresh;
      }
    }
    EXPECT_EQ(moved, fresh * kRowBytes);
    EXPECT_EQ(reloading.step(kBudget), 2 * (kBudget - 1) * kRowBytes);
    EXPECT_EQ(elastic.last, reloading.last);
  }
  EXPECT_EQ(elastic.slots.sent(), 131);
  EXPECT_EQ(elastic.slots.offloaded_bytes(), 131 * 2 * kRowBytes);
}

TEST(SlotCache, TheNewestEntryMayComeBehindTheView) {
  Pair ahead(100, true, 7), pair(100, true, 7);
  for (int step = 0; step < 20; ++step) {
    EXPECT_EQ(step % 3 < 2 ? ahead.step_ahead(20) : ahead.step(20), pair.step(20)) << step;
    EXPECT_EQ(ahead.last, pair.last);
  }
}

TEST(SlotCache, ServesAListAQueryHead) {
  Pair pair(80, true, 5, /*lists=*/4);
  ++pair.length;
  const Lists chosen = pair.choose(12);
  --pair.length;
  pair.slots.prefetch(chosen);
  pair.append(1);
  const auto view = pair.slots.arrive(pair.tail);
  const IndexedSegment expected(pair.whole, chosen, pair.cache.ledger);
  const auto q = testing::random_floats(4 * 16, "q", 1);
  const auto attend = [&](const Segment& segment) {
    std::vector<float> out(4 * 16 + 8);
    kernels::AttentionState state{.out = out.data(), .max = out.data() + 64, .sum = out.data() + 68};
    kernels::init_attention(state, 1, 4, 16);
    kvarena::attend(plan_of(segment, {.q = q.data(), .q_len = 1, .q_stride = 64, .position = 80}), state);
    return out;
  };
  EXPECT_EQ(attend(*view), attend(expected)) << "the same bits: the same entries in the same order";
}

TEST(SlotCache, GrowsWithTheBudgetAndKeepsWhatItHas) {
  Pair pair(60, true, 7);
  for (int64_t budget = 5; budget < 40; ++budget) (void)pair.step(budget);
}

TEST(SlotCache, ACopyGoesOnAsTheOriginal) {
  Pair pair(60, true, 9);
  for (int step = 0; step < 5; ++step) (void)pair.step(16);
  const auto ledger = std::make_shared<MemoryLedger>();
  {
    const auto copy = pair.slots.clone(ledger);
    EXPECT_EQ(copy->bytes(), pair.slots.bytes());
    EXPECT_EQ(ledger->current(Tier::device), copy->bytes());
    EXPECT_GE(ledger->current(Tier::host), 65 * 2 * kRowBytes);
  }
  EXPECT_EQ(ledger->current(), 0);
}

TEST(SlotCache, SaysThatATierIsFull) {
  const auto tiers = std::make_shared<const Hierarchy>(
      std::vector<TierSettings>{{.tier = Tier::host, .capacity_bytes = 1000, .link = {.name = "real"}}});
  KvCache cache(1, kShape);
  const auto rows = testing::random_floats(100 * 32, "rows", 1);
  cache.layers[0].append(rows.data(), rows.data(), 100, 32, 0);
  SlotCache slots(kShape, cache.ledger, tiers, {});
  EXPECT_THROW(slots.offload(cache.layers[0].tail()), UserError);
  EXPECT_EQ(cache.layers[0].entries(0), 100) << "nothing is lost";
  EXPECT_EQ(cache.ledger->current(Tier::host), 0);
}

}  // namespace
}  // namespace kvarena::storage
