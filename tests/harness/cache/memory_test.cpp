#include "harness/cache/memory.h"

#include <gtest/gtest.h>

namespace kvarena {
namespace {

TEST(MemoryLedger, CountsWhatLivesAndRemembersThePeak) {
  auto ledger = std::make_shared<MemoryLedger>();
  {
    const Buffer a(ledger, Tier::device, 1000);
    {
      const Buffer b(ledger, Tier::device, 500);
      const Buffer c(ledger, Tier::host, 70);
      EXPECT_EQ(ledger->current(Tier::device), 1500);
      EXPECT_EQ(ledger->current(), 1570);
    }
    EXPECT_EQ(ledger->current(Tier::device), 1000);
    EXPECT_EQ(ledger->current(Tier::host), 0);
  }
  EXPECT_EQ(ledger->current(), 0);
  EXPECT_EQ(ledger->peak(Tier::device), 1500);
  EXPECT_EQ(ledger->peak(Tier::host), 70);
}

TEST(Buffer, MovingTransfersAndCloningCountsElsewhere) {
  auto ledger = std::make_shared<MemoryLedger>();
  auto other = std::make_shared<MemoryLedger>();
  Buffer a(ledger, Tier::device, 256);
  a.data()[17] = std::byte{42};
  Buffer moved = std::move(a);
  EXPECT_EQ(ledger->current(), 256);
  const Buffer copy = moved.clone(other);
  EXPECT_EQ(copy.data()[17], std::byte{42});
  EXPECT_EQ(other->current(), 256);
  moved = Buffer();
  EXPECT_EQ(ledger->current(), 0);
}

TEST(LedgerVector, CountsItsCapacity) {
  auto ledger = std::make_shared<MemoryLedger>();
  {
    LedgerVector<int32_t> list{LedgerAllocator<int32_t>(ledger)};
    list.resize(100);
    EXPECT_EQ(ledger->current(), static_cast<int64_t>(list.capacity() * sizeof(int32_t)));
  }
  EXPECT_EQ(ledger->current(), 0);
}

}  // namespace
}  // namespace kvarena
