#include "harness/storage/storage.h"

#include <gtest/gtest.h>

#include <thread>

namespace kvarena::storage {
namespace {

TEST(Storage, CountsBlocksInTheTierAndInTheirLedgerWhileTheyLive) {
  MemoryStorage storage(Tier::host, 1000);
  const auto ledger = std::make_shared<MemoryLedger>();
  {
    const auto block = storage.allocate(ledger, 600);
    EXPECT_EQ(storage.used(), 600);
    EXPECT_EQ(ledger->current(Tier::host), 600);
    EXPECT_EQ(ledger->current(Tier::device), 0);
  }
  EXPECT_EQ(storage.used(), 0);
  EXPECT_EQ(ledger->current(), 0);
}

TEST(Storage, AFullTierRefusesOneRequestAndKeepsTheOthers) {
  MemoryStorage storage(Tier::host, 1000);
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto mine = storage.allocate(ledger, 600);
  const auto other = std::make_shared<MemoryLedger>();
  try {
    (void)storage.allocate(other, 500);
    FAIL() << "1100 bytes in 1000";
  } catch (const TierFull& error) {
    EXPECT_NE(std::string(error.what()).find("host tier: found 500 bytes asked for beside 600 in use"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(other->current(), 0);
  EXPECT_EQ(storage.used(), 600);
  EXPECT_NO_THROW((void)storage.allocate(other, 400));
}

TEST(Storage, ARequestMayWaitForRoom) {
  MemoryStorage storage(Tier::host, 1000);
  const auto ledger = std::make_shared<MemoryLedger>();
  auto block = storage.allocate(ledger, 600);
  std::thread releases([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    block.reset();
  });
  EXPECT_EQ(storage.allocate(ledger, 900, kNoLimit)->bytes(), 900);
  releases.join();
}

TEST(Storage, WhatNeverFitsIsRefusedWithoutWaiting) {
  MemoryStorage storage(Tier::remote, 1000);
  EXPECT_THROW((void)storage.allocate(std::make_shared<MemoryLedger>(), 1001, kNoLimit), TierFull);
}

TEST(Storage, BlocksOutliveTheirStorage) {
  const auto ledger = std::make_shared<MemoryLedger>();
  std::shared_ptr<Block> block;
  {
    MemoryStorage storage(Tier::host, 100);
    block = storage.allocate(ledger, 100);
  }
  std::byte one{7};
  block->write(99, {&one, 1});
  std::byte read{};
  block->read(99, {&read, 1});
  EXPECT_EQ(read, one);
  block.reset();
  EXPECT_EQ(ledger->current(), 0);
}

}  // namespace
}  // namespace kvarena::storage
