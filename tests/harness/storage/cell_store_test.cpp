// A layer that leaves the device and comes back: the same bits from every tier, memory only where it is.

#include "harness/storage/cell_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "harness/cache/layer_cache.h"
#include "harness/core/error.h"
#include "kernels/cells/cells.h"
#include "tests/support/random_entries.h"

namespace kvarena::storage {
namespace {

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::bf16};
constexpr LinkSpec kReal{.name = "real"};

HierarchyPtr machine(int64_t host_bytes = kUnlimited, LinkFault fault = {}) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("cell_store_test-" + std::to_string(::getpid()));
  return std::make_shared<const Hierarchy>(std::vector<TierSettings>{
      {.tier = Tier::host, .capacity_bytes = host_bytes, .link = kReal, .fault = std::move(fault)},
      {.tier = Tier::disk, .link = kReal, .folder = folder}});
}

void append(EntrySegment& segment, int64_t count) {
  const auto n = static_cast<int64_t>(segment.entries(0));
  const auto rows = testing::random_floats(2 * count * 32, "rows", static_cast<uint64_t>(n));
  segment.append(rows.data(), rows.data() + count * 32, count, 32, 7 + n);
}

void expect_same(const EntrySegment& a, const EntrySegment& b) {
  ASSERT_EQ(a.entries(0), b.entries(0));
  const auto count = static_cast<size_t>(a.entries(0) * 16);
  std::vector<float> x(count), y(count);
  for (int64_t head = 0; head < 2; ++head) {
    EXPECT_EQ(a.positions(head), b.positions(head));
    for (const bool keys : {true, false}) {
      a.read(head, keys ? x.data() : nullptr, keys ? nullptr : x.data());
      b.read(head, keys ? y.data() : nullptr, keys ? nullptr : y.data());
      EXPECT_EQ(x, y);
    }
  }
}

TEST(CellStore, ALayerComesBackAsItWasAndGoesOnGrowing) {
  for (const Tier tier : {Tier::host, Tier::disk}) {
    const auto ledger = std::make_shared<MemoryLedger>();
    CellStore store(kShape, ledger, machine(), tier);
    EntrySegment whole(kShape, std::make_shared<MemoryLedger>()), device(kShape, ledger);
    append(whole, 100);
    append(device, 100);
    for (const int64_t more : {1, 7, 40, 300, 16}) {
      const int64_t before = std::min(store.entries(), device.entries(0));
      store.write(device, before).wait();
      device = EntrySegment(kShape, ledger);
      EXPECT_EQ(ledger->current(Tier::device), 0);
      EXPECT_GE(ledger->current(tier), store.bytes());
      EXPECT_EQ(store.bytes(), 2 * 2 * kernels::cell_bytes(store.entries(), 16, DType::bf16));

      Transfer load = store.load(device);
      EXPECT_EQ(load.bytes(), store.bytes());
      load.wait();
      EXPECT_EQ(ledger->current(Tier::device), store.device_bytes());
      expect_same(device, whole);
      append(whole, more);
      append(device, more);
    }
  }
}

/// From the tier's memory where it has any, else from where the layer has come to.
TEST(CellStore, ALayerGoesFurtherWithinItsTransfer) {
  for (const Tier tier : {Tier::host, Tier::disk}) {
    const auto ledger = std::make_shared<MemoryLedger>();
    CellStore store(kShape, ledger, machine(), tier);
    EntrySegment device(kShape, ledger), back(kShape, ledger);
    append(device, 100);
    store.write(device, 0).wait();
    std::vector<std::byte> copied;
    const void* from = nullptr;
    bool waited = false;
    Transfer load = store.load(back, [&](std::span<const kernels::HeadRun> heads) {
      from = heads[0].keys;
      for (const kernels::HeadRun& head : heads) {
        EXPECT_EQ(head.entries, 100);
        const int64_t bytes = kernels::cell_bytes(100, 16, DType::bf16);
        for (const void* run : {head.keys, head.values}) {
          const auto* const first = static_cast<const std::byte*>(run);
          copied.insert(copied.end(), first, first + bytes);
        }
      }
      return [&] { waited = true; };
    });
    load.wait();
    EXPECT_TRUE(waited);
    expect_same(back, device);
    EXPECT_EQ(from == back.run(0).keys, tier == Tier::disk);
    std::vector<std::byte> want;
    for (int64_t head = 0; head < 2; ++head) {
      const int64_t bytes = kernels::cell_bytes(100, 16, DType::bf16);
      for (const void* run : {back.run(head).keys, back.run(head).values}) {
        const auto* const first = static_cast<const std::byte*>(run);
        want.insert(want.end(), first, first + bytes);
      }
    }
    EXPECT_EQ(copied, want);
  }
}

TEST(CellStore, EntriesThatWereTakenBackAreWrittenOver) {
  const auto ledger = std::make_shared<MemoryLedger>();
  CellStore store(kShape, ledger, machine(), Tier::host);
  EntrySegment device(kShape, ledger), back(kShape, ledger);
  append(device, 90);
  store.write(device, 0).wait();
  device.truncate(50);
  const auto other = testing::random_floats(2 * 10 * 32, "other");
  device.append(other.data(), other.data() + 320, 10, 32, 57);
  store.write(device, 50).wait();
  store.load(back).wait();
  expect_same(back, device);
}

TEST(CellStore, AFullTierAndAFailedLoadSayWhy) {
  const auto ledger = std::make_shared<MemoryLedger>();
  EntrySegment device(kShape, ledger), back(kShape, ledger);
  append(device, 64);
  CellStore small(kShape, ledger, machine(100), Tier::host);
  EXPECT_THROW((void)small.write(device, 0), TierFull);
  CellStore lost(kShape, ledger, machine(kUnlimited, [](int64_t) { throw UserError("a page was lost"); }), Tier::host);
  lost.write(device, 0).wait();
  Transfer load = lost.load(back);
  EXPECT_THROW(load.wait(), UserError);
  EXPECT_EQ(back.entries(0), 0);
  EXPECT_THROW((void)CellStore(kShape, ledger, machine(), Tier::remote), UserError);
}

}  // namespace
}  // namespace kvarena::storage
