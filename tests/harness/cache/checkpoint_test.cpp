// A cache goes back to where a checkpoint was made, bit for bit, whatever happened to it since: random sequences of
// what methods do, against a copy made before.

#include "harness/cache/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "harness/cache/quantized_segment.h"
#include "harness/core/random.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using testing::random_floats;

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 32, .dtype = DType::bf16};
constexpr int64_t kRow = 2 * 32;

/// One layer, and what methods do to it.
class Subject {
 public:
  Subject(uint64_t seed, bool ragged) : draws_(seed, "checkpoint"), cache(1, kShape) {
    append(60);
    tail().reserve_scores(2);
    remember();
    if (ragged) drop_some();
  }
  void act(bool packs) {
    switch (draws_.below(packs ? 7 : 6, next_++)) {
      case 0: return append(1 + static_cast<int64_t>(draws_.below(3, next_++)));
      case 1: return remember();
      case 2: return drop_some();
      case 3: return overwrite();
      case 4: return drop_newest();
      case 5: return turn();
      default: return pack();
    }
  }
  void append(int64_t n) {
    const std::vector<float> keys = random_floats(n * kRow, fmt::format("keys {}", cache.length));
    const std::vector<float> values = random_floats(n * kRow, fmt::format("values {}", cache.length));
    layer().append(keys.data(), values.data(), n, kRow, cache.length);
    cache.length += n;
  }
  /// As a codec does: 16 entries, half of whose values wait.
  void pack() {
    if (tail().entries(0) < 20 || tail().entries(0) != tail().entries(1)) return;
    if (layer().packed().empty()) {
      const kernels::QuantFormat side{.bits = 4, .group_size = 16, .meta = DType::f16};
      layer().insert_packed(
          std::make_unique<QuantizedSegment>(kShape, QuantizedFormat{.keys = side, .values = side}, cache.ledger));
    }
    layer().packed().front()->take(tail(), 16);
    layer().packed().front()->pack_values(layer().packed().front()->unpacked_values() / 2);
  }

  LayerCache& layer() { return cache.layers.front(); }
  EntrySegment& tail() { return layer().tail(); }

 private:
  void remember() {
    for (int64_t head = 0; head < kShape.kv_heads; ++head) {
      for (float& score : tail().entry_scores(head)) score += static_cast<float>(draws_.uniform(next_++));
    }
  }
  void drop_some() {
    std::vector<std::vector<int32_t>> kept(2);
    for (int64_t head = 0; head < kShape.kv_heads; ++head) {
      for (int64_t i = 0; i < tail().entries(head); ++i) {
        if (draws_.below(12, next_++) > 0) kept[head].push_back(static_cast<int32_t>(i));
      }
    }
    tail().keep(kept);
  }
  void overwrite() {
    for (int64_t head = 0; head < kShape.kv_heads; ++head) {
      if (tail().entries(head) == 0) continue;
      const auto entry = static_cast<int64_t>(draws_.below(tail().entries(head), next_++));
      const std::vector<float> row = random_floats(32, fmt::format("row {}", next_));
      tail().overwrite(head, entry, row.data(), draws_.below(2, next_++) == 0 ? row.data() : nullptr);
    }
  }
  void drop_newest() {
    if (!tail().ragged() && tail().entries(0) > 2) tail().truncate(tail().entries(0) - 2);
  }
  /// Changes all entries together.
  void turn() {
    if (draws_.below(4, next_++) > 0) return;
    const std::vector<float> cos(16, 0.0F), sin(16, 1.0F);
    const int64_t count = std::min(tail().entries(0), tail().entries(1));
    if (count > 0) tail().rotate_keys(0, count, cos, sin);
  }

  RandomStream draws_;
  uint64_t next_ = 0;

 public:
  KvCache cache;
};

void expect_same(const KvCache& found, const KvCache& expected) {
  EXPECT_EQ(found.length, expected.length);
  const LayerCache& a = found.layers.front();
  const LayerCache& b = expected.layers.front();
  ASSERT_EQ(a.segments().size(), b.segments().size());
  ASSERT_EQ(a.packed().size(), b.packed().size());
  EXPECT_EQ(a.tail().ragged(), b.tail().ragged());
  for (int64_t head = 0; head < kShape.kv_heads; ++head) {
    for (size_t i = 0; i < b.segments().size(); ++i) {
      const Segment& one = *a.segments()[i];
      const Segment& other = *b.segments()[i];
      ASSERT_EQ(one.positions(head), other.positions(head));
      const auto size = static_cast<size_t>(other.entries(head) * kShape.head_dim);
      std::vector<float> keys(size), values(size), other_keys(size), other_values(size);
      one.read(head, keys.data(), values.data());
      other.read(head, other_keys.data(), other_values.data());
      EXPECT_EQ(keys, other_keys);
      EXPECT_EQ(values, other_values);
    }
    EXPECT_TRUE(std::ranges::equal(a.tail().entry_scores(head), b.tail().entry_scores(head)));
  }
  for (size_t i = 0; i < b.packed().size(); ++i) {
    EXPECT_EQ(a.packed()[i]->unpacked_values(), b.packed()[i]->unpacked_values());
  }
}

TEST(CacheCheckpoint, GivesBackEveryBitAfterAnythingThatMethodsDo) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const bool packs = seed % 2 == 1;
    Subject subject(seed, /*ragged=*/seed % 3 == 1 && !packs);
    if (packs) subject.pack();
    for (int round = 0; round < 3; ++round) {
      const KvCache before = subject.cache.clone();
      CacheCheckpoint checkpoint(subject.cache);
      for (int i = 0; i < 12; ++i) subject.act(packs);
      checkpoint.rewind();
      ASSERT_NO_FATAL_FAILURE(expect_same(subject.cache, before));
      for (int i = 0; i < 4; ++i) subject.act(packs);  // another beginning
    }
  }
}

TEST(CacheCheckpoint, HoldsBackWhatLeavesAlone) {
  Subject subject(1, /*ragged=*/true);
  for (int i = 0; i < 40; ++i) subject.append(50);
  const int64_t bytes = subject.cache.bytes();
  const int64_t entry = kShape.entry_bytes();
  CacheCheckpoint checkpoint(subject.cache);
  EXPECT_LE(subject.cache.bytes() - bytes, bytes / 10);  // remembered numbers
  std::vector<std::vector<int32_t>> kept(2);
  for (int64_t head = 0; head < kShape.kv_heads; ++head) {
    kept[head].resize(static_cast<size_t>(subject.tail().entries(head)));
    std::iota(kept[head].begin(), kept[head].end(), 0);
    kept[head].erase(kept[head].begin() + 7, kept[head].begin() + 15);
  }
  subject.tail().keep(kept);
  EXPECT_LE(subject.cache.bytes(), bytes + bytes / 10 + 16 * entry);
  checkpoint.rewind();
  EXPECT_LE(subject.cache.bytes(), bytes);
}

TEST(CacheCheckpoint, LeavesNothingWhereTheCacheGoesOn) {
  Subject subject(2, /*ragged=*/true), unmarked(2, /*ragged=*/true);
  {
    const CacheCheckpoint checkpoint(subject.cache);
    for (int i = 0; i < 20; ++i) subject.act(false);
  }
  for (int i = 0; i < 20; ++i) unmarked.act(false);
  expect_same(subject.cache, unmarked.cache);
  EXPECT_EQ(subject.cache.bytes(), unmarked.cache.bytes());
}

}  // namespace
}  // namespace kvarena
