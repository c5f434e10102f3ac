// Blocks behind the device: their entries unchanged, and on the device the ones used last.

#include "harness/storage/block_cache.h"

#include <gtest/gtest.h>

#include "harness/core/error.h"
#include "tests/support/random_entries.h"

namespace kvarena::storage {
namespace {

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::bf16};
constexpr int64_t kBlock = 5;
constexpr int64_t kBlockBytes = kBlock * 2 * 2 * 16 * 2;
constexpr int64_t kFirst = 3;  // position of the first entry

HierarchyPtr machine(LinkFault fault = {}, int64_t capacity = kUnlimited) {
  return std::make_shared<const Hierarchy>(std::vector<TierSettings>{
      {.tier = Tier::host, .capacity_bytes = capacity, .link = {.name = "real"}, .fault = std::move(fault)}});
}

struct Layer {
  explicit Layer(int64_t held, const HierarchyPtr& tiers = machine())
      : ledger(std::make_shared<MemoryLedger>()),
        all(kShape, ledger),
        blocks(kShape, ledger, tiers, {.block = kBlock, .held = held, .first = kFirst}) {
    const auto rows = testing::random_floats(2 * 50 * 32, "rows");
    all.append(rows.data(), rows.data() + 50 * 32, 50, 32, kFirst);
  }
  void send(int64_t count) {
    for (int64_t i = 0; i < count; ++i) blocks.append(all, blocks.blocks() * kBlock);
  }
  void expect_block(const BlockCache& of, int32_t block) const {
    const EntrySegment& found = of.entries_of(block);
    for (int64_t h = 0; h < 2; ++h) {
      std::vector<float> keys(50 * 16), values(50 * 16), own_keys(kBlock * 16), own_values(kBlock * 16);
      all.read(h, keys.data(), values.data());
      found.read(h, own_keys.data(), own_values.data());
      const auto from = block * kBlock * 16;
      EXPECT_EQ(own_keys, std::vector<float>(keys.begin() + from, keys.begin() + from + kBlock * 16));
      EXPECT_EQ(own_values, std::vector<float>(values.begin() + from, values.begin() + from + kBlock * 16));
      EXPECT_EQ(found.positions(h).front(), kFirst + block * kBlock);
    }
  }

  LedgerPtr ledger;
  EntrySegment all;
  BlockCache blocks;
};

TEST(BlockCache, TheBlocksUsedLastStay) {
  Layer layer(3);
  layer.send(8);
  EXPECT_EQ(layer.blocks.blocks(), 8);
  EXPECT_EQ(layer.blocks.offloaded_bytes(), 8 * kBlockBytes);
  const auto use = [&](const std::vector<int32_t>& wanted) {
    layer.blocks.use(wanted);
    for (const int32_t block : wanted) layer.expect_block(layer.blocks, block);
    return layer.blocks.loaded().loaded_bytes / kBlockBytes;
  };
  EXPECT_EQ(use({1, 4}), 2);
  EXPECT_EQ(use({4, 6}), 1);  // 1 4 6
  EXPECT_EQ(use({1}), 0);
  EXPECT_EQ(use({7}), 1);        // one of 4 and 6 goes, both used longest ago: 4
  EXPECT_EQ(use({1, 6, 7}), 0);  // so these are there
  EXPECT_EQ(use({0, 2, 3, 5}), 4) << "more than may stay, but all were asked for";
  EXPECT_EQ(layer.blocks.held(), 4);
  EXPECT_EQ(use({5}), 0);
  EXPECT_EQ(use({6}), 1);
  EXPECT_EQ(layer.blocks.held(), 3);
}

TEST(BlockCache, ACopyHasTheSameBlocksAndCountsItsOwnBytes) {
  Layer layer(2);
  layer.send(4);
  layer.blocks.use({0, 3});
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto copy = layer.blocks.clone(ledger);
  auto& blocks = static_cast<BlockCache&>(*copy);
  EXPECT_EQ(ledger->current(Tier::device), blocks.bytes());
  EXPECT_GE(ledger->current(Tier::host), 4 * kBlockBytes);
  blocks.use({0, 3});
  EXPECT_EQ(blocks.loaded().loaded_bytes, 0);
  layer.send(2);
  EXPECT_EQ(blocks.blocks(), 4);
  blocks.use({2});
  layer.expect_block(blocks, 2);
}

TEST(BlockCache, AFailedLoadChangesNothing) {
  Layer layer(2, machine([](int64_t transfer) {
                if (transfer == 1) throw UserError("host tier: the memory is gone");
              }));
  layer.send(4);
  layer.blocks.use({0, 1});
  EXPECT_THROW(layer.blocks.use({1, 2}), UserError);
  EXPECT_EQ(layer.blocks.held(), 2);
  layer.blocks.use({0, 1});
  EXPECT_EQ(layer.blocks.loaded().loaded_bytes, 0);
  layer.blocks.use({1, 2});
  layer.expect_block(layer.blocks, 2);
}

TEST(BlockCache, AFullTierIsSaid) {
  Layer layer(2, machine({}, 2 * kBlockBytes));
  EXPECT_THROW(layer.send(8), TierFull);
}

}  // namespace
}  // namespace kvarena::storage
