// Layers with a sliding window release what no later query sees, and attention keeps its bits.

#include "harness/cache/sliding_window.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "harness/cache/attend_plan.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using testing::random_floats;

constexpr int64_t kRow = 2 * 32;  // numbers of a token's keys

LayerShape windowed(int64_t window, bool chunked = false) {
  return {.q_heads = 4, .kv_heads = 2, .head_dim = 32, .window = window, .chunked = chunked, .dtype = DType::bf16};
}

void append(LayerCache& layer, int64_t n, int64_t position) {
  const auto keys = random_floats(n * kRow, "keys", static_cast<uint64_t>(position) + 1);
  const auto values = random_floats(n * kRow, "values", static_cast<uint64_t>(position) + 1);
  layer.append(keys.data(), values.data(), n, kRow, position);
}

/// Attention of queries that own the newest entries.
std::vector<float> attended(const LayerCache& layer, int64_t q_len, int64_t position) {
  const LayerShape& shape = layer.shape();
  const auto q = random_floats(q_len * 128, "q", static_cast<uint64_t>(position));
  std::vector<float> out(static_cast<size_t>(q_len * 128)), max(static_cast<size_t>(q_len * 4)), sum(max.size());
  const kernels::AttentionState state{.out = out.data(), .max = max.data(), .sum = sum.data()};
  kernels::init_attention(state, q_len, shape.q_heads, shape.head_dim, shape.sinks);
  attend(layer.plan({.q = q.data(), .q_len = q_len, .q_stride = 128, .position = position}), state);
  std::vector<float> lse(max.size());
  kernels::finish_attention(state, q_len, shape.q_heads, shape.head_dim, lse.data());
  out.insert(out.end(), lse.begin(), lse.end());
  return out;
}

TEST(SlidingWindow, SaysWhatAQuerySees) {
  EXPECT_EQ(oldest_seen(0, false, 1000), 0);
  EXPECT_EQ(oldest_seen(512, false, 511), 0);
  EXPECT_EQ(oldest_seen(512, false, 512), 1);
  EXPECT_EQ(oldest_seen(512, true, 511), 0);
  EXPECT_EQ(oldest_seen(512, true, 512), 512);
  EXPECT_EQ(oldest_seen(512, true, 1535), 1024);
}

/// Passes of different lengths, some taken back, on a layer that releases before each of them and on one that never
/// does.
TEST(SlidingWindow, AttentionKeepsItsBits) {
  for (const LayerShape& shape :
       {windowed(64), windowed(300), windowed(512), windowed(700), windowed(300, true), windowed(512, true)}) {
    const auto ledger = std::make_shared<MemoryLedger>();
    LayerCache held(shape, ledger), released(shape, ledger);
    int64_t length = 0;
    for (const int64_t count : {500, 13, 512, 1, 1, 1000, 7, 90, 1, 600, 513, 1}) {
      release_unseen(released, length);
      for (LayerCache* layer : {&held, &released}) append(*layer, count, length);
      ASSERT_EQ(attended(released, count, length), attended(held, count, length)) << shape.window << " at " << length;
      length += count;
      if (count != 7 && count != 90) continue;  // drafts that were refused
      length -= 5;
      for (LayerCache* layer : {&held, &released}) layer->tail().truncate(length - layer->tail().position(0, 0));
    }
    release_unseen(released, length);
    EXPECT_LT(released.tail().entries(0), shape.window + kernels::kChunk);
    EXPECT_EQ(released.tail().position(0, 0) % kernels::kChunk, 0);
    EXPECT_EQ(held.tail().entries(0), length);
    EXPECT_LT(released.bytes(), held.bytes() / 2);
  }
}

TEST(SlidingWindow, WhatAMethodKeepsStays) {
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto entries_after = [&](const LayerShape& shape, const auto& change) {
    LayerCache layer(shape, ledger);
    append(layer, 1500, 0);
    change(layer);
    const int64_t before = layer.entries(0);
    release_unseen(layer, 1500);
    return before - layer.entries(0);
  };
  EXPECT_EQ(entries_after(windowed(100), [](LayerCache&) {}), 1024);
  EXPECT_EQ(entries_after(windowed(0), [](LayerCache&) {}), 0);
  EXPECT_EQ(entries_after(windowed(100), [](LayerCache& layer) { layer.tail().reserve_scores(1); }), 0);
  EXPECT_EQ(entries_after(windowed(100),
                          [](LayerCache& layer) {
                            std::vector<int32_t> all(1500);
                            std::iota(all.begin(), all.end(), 0);
                            layer.tail().keep(std::vector(2, all));
                          }),
            0);
  EXPECT_EQ(entries_after(windowed(100),
                          [&](LayerCache& layer) {
                            layer.insert_before_tail(std::make_unique<EntrySegment>(layer.shape(), ledger));
                          }),
            0);
}

TEST(SlidingWindow, ClonesKeepTheirs) {
  const std::vector<LayerShape> shapes = {windowed(100), windowed(0)};
  KvCache cache(shapes);
  for (LayerCache& layer : cache.layers) append(layer, 1500, 0);
  cache.length = 1500;
  KvCache clone = cache.clone();
  release_unseen(clone);
  EXPECT_EQ(cache.layers[0].entries(0), 1500);
  EXPECT_EQ(clone.layers[0].entries(0), 476);
  EXPECT_EQ(clone.layers[1].entries(0), 1500);
  EXPECT_EQ(sliding_bytes(clone), clone.layers[0].bytes());
  EXPECT_LT(clone.bytes(), cache.bytes());
  EXPECT_EQ(clone.bytes(), clone.ledger->current());
  clone.truncate(1490);
  EXPECT_EQ(clone.layers[0].entries(0), 466);
}

}  // namespace
}  // namespace kvarena
