#include "harness/cache/memory.h"

#include <gtest/gtest.h>

#include <utility>

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

TEST(Buffer, ClonesShareMemoryUntilOneIsWritten) {
  const MemoryLedger& process = MemoryLedger::process();
  const int64_t before = process.current(Tier::device);
  auto ledger = std::make_shared<MemoryLedger>();
  auto other = std::make_shared<MemoryLedger>();
  Buffer a(ledger, Tier::device, 256);
  a.data()[17] = std::byte{42};
  Buffer b = a.clone(other);
  EXPECT_EQ(std::as_const(a).data(), std::as_const(b).data());
  EXPECT_EQ(process.current(Tier::device) - before, 256);
  EXPECT_EQ(ledger->current() + other->current(), 512);

  b.data()[17] = std::byte{7};
  EXPECT_EQ(std::as_const(a).data()[17], std::byte{42});
  EXPECT_EQ(std::as_const(b).data()[17], std::byte{7});
  EXPECT_EQ(process.current(Tier::device) - before, 512);
  EXPECT_EQ(other->peak(Tier::device), 256);
  const std::byte* const own = std::as_const(b).data();
  EXPECT_EQ(b.data(), own);  // nobody shares it any more

  Buffer c = a.clone(other);
  a = Buffer();
  EXPECT_EQ(process.current(Tier::device) - before, 512);
  EXPECT_EQ(ledger->current(), 0);
  Buffer d = c.clone(ledger);
  d.resize(ledger, 32);
  EXPECT_EQ(std::as_const(d).data()[17], std::byte{42});
  EXPECT_EQ(c.bytes(), 256);
  EXPECT_EQ(ledger->current(), 32);
  EXPECT_EQ(ledger->peak(Tier::device), 256 + 32);  // as by itself
  EXPECT_EQ(process.current(Tier::device) - before, 512 + 32);
  b = Buffer();
  c = Buffer();
  d = Buffer();
  EXPECT_EQ(process.current(Tier::device), before);
  EXPECT_EQ(other->current(), 0);
}

TEST(Buffer, GrowsWhereItIsWhileThereIsRoomAndCountsAsIfItMoved) {
  const MemoryLedger& process = MemoryLedger::process();
  const int64_t before = process.current(Tier::device);
  auto ledger = std::make_shared<MemoryLedger>();
  Buffer a(ledger, Tier::device, 9 * 1024 + 64);
  const std::byte* const place = a.data();
  for (int64_t i = 0; i < a.bytes(); ++i) a.data()[i] = std::byte{42};
  a.resize(ledger, 10 * 1024 - 512);
  EXPECT_EQ(a.data(), place) << "sizes up to 9.5 KiB are one";
  EXPECT_EQ(a.data()[9 * 1024 + 63], std::byte{42});
  for (int64_t i = 9 * 1024 + 64; i < a.bytes(); ++i) ASSERT_EQ(a.data()[i], std::byte{0});
  EXPECT_EQ(ledger->current(), 10 * 1024 - 512);
  EXPECT_EQ(ledger->peak(Tier::device), 19 * 1024 - 448);
  EXPECT_EQ(process.current(Tier::device) - before, 10 * 1024 - 512);
  a.data()[a.bytes() - 1] = std::byte{7};
  a.resize(ledger, 9 * 1024 + 128);
  a.resize(ledger, 10 * 1024 - 512);
  EXPECT_EQ(a.data(), place);
  EXPECT_EQ(a.data()[a.bytes() - 1], std::byte{0}) << "what it no longer held comes back as zeros";

  const Buffer shared = a.clone(ledger);
  a.resize(ledger, 10 * 1024);
  EXPECT_NE(a.data(), place);
  EXPECT_EQ(shared.data(), place);
  a.resize(ledger, 11 * 1024);
  EXPECT_EQ(a.data()[9 * 1024 - 1], std::byte{42});
  EXPECT_EQ(ledger->current(), 21 * 1024 - 512);
}

TEST(MemoryLedger, OfTheProcessCountsWhatOthersCount) {
  MemoryLedger& process = MemoryLedger::process();
  const int64_t before = process.current(Tier::disk);
  process.restart_peaks();
  MemoryLedger ledger;
  ledger.add(Tier::disk, 900);
  ledger.add(Tier::disk, -500);
  EXPECT_EQ(process.current(Tier::disk) - before, 400);
  EXPECT_EQ(process.peak(Tier::disk) - before, 900);
  process.restart_peaks();
  EXPECT_EQ(process.peak(Tier::disk) - before, 400);
  ledger.add(Tier::disk, -400);
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
