// Clones of caches share memory until one of them is written: what is written changes nothing of the others, and the
// process holds what it is said to hold.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

#include "harness/cache/hierarchical_segment.h"
#include "harness/cache/layer_cache.h"
#include "harness/cache/quantized_segment.h"
#include "harness/cache/shared_front.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using testing::random_floats;

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 32, .dtype = DType::bf16};
constexpr int64_t kLayers = 3;
constexpr int64_t kEntries = 88;  // the last cell is half full

void append(LayerCache& layer, int64_t n, int64_t position) {
  const auto rows = random_floats(n * 64, "rows", static_cast<uint64_t>(1 + position));
  layer.append(rows.data(), rows.data(), n, 64, position);
}

KvCache full_cache() {
  KvCache cache(kLayers, kShape);
  for (LayerCache& layer : cache.layers) append(layer, kEntries, 0);
  cache.length = kEntries;
  return cache;
}

/// Packs the first 64 entries of every layer, and of these the first 32 values.
void pack(KvCache& cache) {
  for (LayerCache& layer : cache.layers) {
    const QuantizedFormat format{.keys = {.bits = 2, .group_size = 16}, .values = {.bits = 2, .group_size = 32}};
    auto codes = std::make_unique<QuantizedSegment>(kShape, format, cache.ledger);
    codes->take(layer.tail(), 64);
    codes->pack_values(32);
    layer.insert_packed(std::move(codes));
  }
}

/// Every number and position of a cache.
std::vector<float> content(const KvCache& cache) {
  std::vector<float> all;
  for (const LayerCache& layer : cache.layers) {
    for (const auto& segment : layer.segments()) {
      for (int64_t head = 0; head < kShape.kv_heads; ++head) {
        std::vector<float> keys(static_cast<size_t>(segment->entries(head) * kShape.head_dim)), values(keys.size());
        segment->read(head, keys.data(), values.data());
        all.insert(all.end(), keys.begin(), keys.end());
        all.insert(all.end(), values.begin(), values.end());
        for (const int32_t position : segment->positions(head)) all.push_back(static_cast<float>(position));
      }
    }
  }
  return all;
}

struct Write {
  std::string name;
  std::function<void(LayerCache& layer)> act;
  bool packed = false;  // begins with pack()
};

std::vector<Write> writes() {
  const auto row = std::make_shared<std::vector<float>>(random_floats(64, "row"));
  const auto every_third = [](int64_t entries) {
    std::vector<int32_t> kept;
    for (int32_t i = 0; i < entries; i += 3) kept.push_back(i);
    return std::vector(2, kept);
  };
  return {
      {"append into the last cell", [](LayerCache& layer) { append(layer, 1, kEntries); }},
      {"append cells", [](LayerCache& layer) { append(layer, 200, kEntries); }},
      {"append to a head",
       [=](LayerCache& layer) {
         const int32_t position = kEntries;
         layer.tail().append_to_head(1, {&position, 1}, row->data(), row->data(), 32);
       }},
      {"truncate and append",
       [](LayerCache& layer) {
         layer.tail().truncate(30);
         append(layer, 5, 30);
       }},
      {"keep few", [=](LayerCache& layer) { layer.tail().keep(every_third(kEntries)); }},
      {"keep all but one",
       [](LayerCache& layer) {
         std::vector<int32_t> kept(kEntries - 1);
         std::iota(kept.begin(), kept.end(), 1);
         layer.tail().keep(std::vector(2, kept));
       }},
      {"drop the front", [](LayerCache& layer) { layer.tail().drop_front(40); }},
      {"drop less than a cell", [](LayerCache& layer) { layer.tail().drop_front(3); }},
      {"overwrite", [=](LayerCache& layer) { layer.tail().overwrite(1, 20, row->data(), nullptr); }},
      {"replace", [=](LayerCache& layer) { layer.tail().replace(7, row->data(), row->data(), 1, 64); }},
      {"rotate",
       [](LayerCache& layer) {
         layer.tail().rotate_keys(0, kEntries, std::vector<float>(16, 0.6F), std::vector<float>(16, 0.8F));
       }},
      {"mark, overwrite and rewind",
       [=](LayerCache& layer) {
         layer.tail().mark(layer.ledger());
         layer.tail().rotate_keys(2, 5, std::vector<float>(16, 0.6F), std::vector<float>(16, 0.8F));
         layer.tail().overwrite(0, 3, row->data(), row->data());
         layer.tail().rewind();
         layer.tail().overwrite(0, 3, row->data(), row->data());
       }},
      {"pack more", [](LayerCache& layer) { layer.packed().front()->take(layer.tail(), 16); }, true},
      {"pack values", [](LayerCache& layer) { layer.packed().front()->pack_values(20); }, true},
      {"pack after a rewind",
       [](LayerCache& layer) {
         auto& packed = *layer.packed().front();
         packed.mark(layer.ledger());
         packed.pack_values(16);
         packed.rewind();
         packed.take(layer.tail(), 16);
         packed.pack_values(48);
       },
       true},
  };
}

TEST(SharedCaches, AWriteChangesNothingOfTheOthers) {
  for (const Write& write : writes()) {
    for (const bool first : {true, false}) {
      SCOPED_TRACE(write.name + (first ? " in the first" : " in its clone"));
      KvCache cache = full_cache(), alone = full_cache();
      if (write.packed) {
        pack(cache);
        pack(alone);
      }
      KvCache clone = cache.clone();
      const std::vector<float> before = content(cache);
      KvCache& written = first ? cache : clone;
      for (LayerCache& layer : written.layers) write.act(layer);
      for (LayerCache& layer : alone.layers) write.act(layer);
      EXPECT_EQ(content(first ? clone : cache), before);
      EXPECT_EQ(content(written), content(alone));
      EXPECT_NE(content(written), before);
      EXPECT_EQ(written.bytes(), alone.bytes());
      EXPECT_EQ(written.ledger->current(), alone.ledger->current());
    }
  }
}

/// Codes have room for entries that were packed and taken back: others are written there, in memory of their own.
TEST(SharedCaches, RoomOfEntriesThatWereTakenBackIsNotWrittenForOthers) {
  KvCache cache = full_cache();
  pack(cache);
  const auto take = [](LayerCache& layer) { layer.packed().front()->take(layer.tail(), 16); };
  for (LayerCache& layer : cache.layers) {
    layer.tail().mark(layer.ledger());
    layer.packed().front()->mark(layer.ledger());
    take(layer);
    layer.packed().front()->rewind();
    layer.tail().rewind();
  }
  KvCache clone = cache.clone();
  for (LayerCache& layer : cache.layers) take(layer);
  const std::vector<float> before = content(cache);
  const auto row = random_floats(32, "row");
  for (LayerCache& layer : clone.layers) {
    layer.tail().overwrite(0, 3, row.data(), row.data());
    take(layer);
  }
  EXPECT_EQ(content(cache), before);
  EXPECT_NE(content(clone), before);
}

TEST(SharedCaches, BothPlanesOfAHierarchyAreShared) {
  KvCache cache = full_cache();
  for (LayerCache& layer : cache.layers) {
    auto planes = std::make_unique<HierarchicalSegment>(kShape, 16, 32, cache.ledger);
    planes->take(layer.tail(), 32);
    layer.insert_packed(std::move(planes));
  }
  const std::vector<float> before = content(cache);
  const int64_t held = MemoryLedger::process().current(Tier::device);
  KvCache clone = cache.clone();
  EXPECT_EQ(MemoryLedger::process().current(Tier::device), held);
  for (LayerCache& layer : clone.layers) layer.packed().front()->take(layer.tail(), 16);
  EXPECT_EQ(content(cache), before);
  EXPECT_NE(content(clone), before);
}

TEST(SharedCaches, TheProcessHoldsSharedEntriesOnce) {
  const MemoryLedger& process = MemoryLedger::process();
  const int64_t before = process.current(Tier::device);
  const auto held = [&] { return process.current(Tier::device) - before; };
  KvCache cache = full_cache();
  const int64_t full = cache.bytes();
  EXPECT_EQ(held(), full);
  {
    KvCache clone = cache.clone();
    const KvCache another = clone.clone();
    EXPECT_EQ(clone.bytes(), full);
    EXPECT_EQ(clone.ledger->current(), full);
    EXPECT_EQ(clone.ledger->peak(Tier::device), full);
    EXPECT_EQ(held(), full);
    append(clone.layers[1], 1, kEntries);  // one layer takes memory of its own
    EXPECT_EQ(held(), full + full / kLayers);
    clone.own_tails();
    EXPECT_EQ(held(), 2 * full);
    clone.own_tails();
    EXPECT_EQ(held(), 2 * full);
  }
  EXPECT_EQ(held(), full);

  KvCache few = cache.clone();
  for (LayerCache& layer : few.layers) layer.tail().keep(std::vector(2, std::vector<int32_t>{0, 5, 9}));
  EXPECT_EQ(held(), full + few.bytes());  // what is kept was copied, nothing else
  { const KvCache gone = std::move(cache); }
  EXPECT_EQ(held(), few.bytes());
}

/// Bytes that the process holds more when four clones of a cache have grown by `n` entries each.
int64_t grown(const KvCache& cache, int64_t n) {
  const int64_t before = MemoryLedger::process().current(Tier::device);
  std::vector<KvCache> clones;
  for (int i = 0; i < 4; ++i) {
    clones.push_back(cache.clone());
    for (LayerCache& layer : clones.back().layers) append(layer, n, cache.length);
  }
  return MemoryLedger::process().current(Tier::device) - before;
}

TEST(SharedCaches, GrowingClonesShareTheFront) {
  constexpr int64_t kLong = 1100;
  const int64_t entry = 2 * kShape.kv_heads * kShape.head_dim * 2;
  for (const bool ragged : {false, true}) {
    KvCache cache(kLayers, kShape);
    for (LayerCache& layer : cache.layers) {
      append(layer, kLong, 0);
      std::vector<std::vector<int32_t>> kept(2, std::vector<int32_t>(1030));
      for (auto& head : kept) std::iota(head.begin(), head.end(), 7);
      kept[1].resize(600);
      if (ragged) layer.tail().keep(kept);
    }
    cache.length = kLong;
    const std::vector<float> before = content(cache);
    const int64_t bytes = cache.bytes();
    EXPECT_GE(grown(cache, 3), 4 * bytes);
    share_front(cache);
    EXPECT_EQ(cache.layers[0].segments().size(), 2U);
    EXPECT_EQ(cache.layers[0].segments()[0]->entries(0), 1024);
    EXPECT_EQ(cache.layers[0].segments()[0]->entries(1), ragged ? 512 : 1024);
    EXPECT_EQ(cache.bytes(), bytes) << "cells are as full as they were";
    EXPECT_LT(grown(cache, 3), 4 * kLayers * entry * 112) << "what chunks leave over, and new cells";
    std::vector<float> after = content(cache);
    std::vector<float> sorted = before;
    std::ranges::sort(sorted);
    std::ranges::sort(after);
    EXPECT_EQ(after, sorted) << "nothing is lost";
  }
}

TEST(SharedCaches, ShortTailsAndWindowsStayWhole) {
  KvCache few = full_cache();
  share_front(few);
  EXPECT_EQ(few.layers[0].segments().size(), 1U);
  LayerShape windowed = kShape;
  windowed.window = 700;
  KvCache window(1, windowed);
  append(window.layers[0], 1100, 0);
  share_front(window);
  EXPECT_EQ(window.layers[0].segments().size(), 1U);
}

}  // namespace
}  // namespace kvarena
