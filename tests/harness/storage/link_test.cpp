#include "harness/storage/link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>

#include "harness/storage/hierarchy.h"

namespace kvarena::storage {
namespace {

/// A megabyte a second and a millisecond a piece: slow enough that what a transfer takes is its spec's.
LinkSpec slow_link() { return {.name = "slow", .bytes_per_s = 1e6, .latency_s = 1e-3, .piece_s = 1e-3}; }

struct Host {
  LedgerPtr ledger = std::make_shared<MemoryLedger>();
  MemoryStorage storage{Tier::host, kUnlimited};

  std::shared_ptr<Block> filled(int64_t bytes) {
    auto block = storage.allocate(ledger, bytes);
    std::vector<std::byte> content(static_cast<size_t>(bytes));
    for (int64_t i = 0; i < bytes; ++i) content[i] = static_cast<std::byte>(i * 7 % 251);
    block->write(0, content);
    return block;
  }
};

std::byte expected_at(int64_t i) { return static_cast<std::byte>(i * 7 % 251); }

TEST(LinkSpec, CostsALatencyEachPieceAndEachByte) {
  const LinkSpec link{.name = "l", .bytes_per_s = 100, .latency_s = 2, .piece_s = 3};
  EXPECT_DOUBLE_EQ(link.seconds(500, 4), 2 + 12 + 5);
  EXPECT_DOUBLE_EQ(link_named("real", "test").seconds(500, 4), 0);
}

TEST(LinkSpec, NamesTheNearestLinkWhenOneIsNotKnown) {
  try {
    (void)link_named("pcie4x16", "engine.host_link");
    FAIL() << "an unknown link was accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("engine.host_link"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("did you mean \"pcie4_x16\""), std::string::npos) << error.what();
  }
}

// Jie et al. 2025, section 3.2: scattered memory takes about five times as long; the top 1% of 32k tokens therefore
// saves about 95%.
TEST(LinkSpec, ScatteredKeysOfABusTakeFiveTimesAsLong) {
  const LinkSpec& link = link_named("pcie4_x16", "test");
  const int64_t heads_and_sides = 8 * 2;
  const int64_t entries = 32768;
  const int64_t top = entries / 100;
  const double all = link.seconds(heads_and_sides * entries * 256, 1);
  const double scattered = link.seconds(heads_and_sides * top * 256, heads_and_sides * top);
  EXPECT_NEAR(scattered / link.seconds(heads_and_sides * top * 256, 0), 5, 1);
  EXPECT_NEAR(1 - scattered / all, 0.95, 0.02);
}

TEST(Link, GathersPiecesAndCountsThoseThatDoNotAdjoin) {
  Host host;
  const auto block = host.filled(1000);
  Link link({.name = "real"});
  std::vector<std::byte> arrived(60);
  Transfer transfer = link.read(block, {{.at = 10, .memory = arrived.data(), .bytes = 20},
                                        {.at = 30, .memory = arrived.data() + 20, .bytes = 20},
                                        {.at = 900, .memory = arrived.data() + 40, .bytes = 20}});
  transfer.wait();
  EXPECT_EQ(transfer.bytes(), 60);
  EXPECT_EQ(transfer.pieces(), 2);
  for (int64_t i = 0; i < 60; ++i) EXPECT_EQ(arrived[i], expected_at(i < 40 ? 10 + i : 860 + i)) << i;
  EXPECT_EQ(link.totals().bytes, 60);
  EXPECT_EQ(link.totals().transfers, 1);
}

TEST(Link, WritesWhatIsReadAgain) {
  Host host;
  const auto block = host.storage.allocate(host.ledger, 4096);
  Link link({.name = "real"});
  std::mt19937 random(11);
  std::vector<std::byte> content(4096);
  for (std::byte& b : content) b = static_cast<std::byte>(random() % 256);
  std::vector<WritePiece> pieces;
  for (int64_t at = 0; at < 4096; at += 64) pieces.push_back({.at = at, .memory = content.data() + at, .bytes = 64});
  std::ranges::shuffle(pieces, random);
  link.write(block, pieces).wait();
  std::vector<std::byte> arrived(4096);
  link.read(block, {{.at = 0, .memory = arrived.data(), .bytes = 4096}}).wait();
  EXPECT_EQ(arrived, content);
}

TEST(Link, ATransferTakesAtLeastItsTimeAndIsHiddenBehindOtherWork) {
  Host host;
  const auto block = host.filled(8000);
  Link link(slow_link());
  std::vector<std::byte> arrived(8000);
  Transfer transfer = link.read(block, {{.at = 0, .memory = arrived.data(), .bytes = 8000}});
  while (!transfer.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // stands for computing
  transfer.wait();
  EXPECT_GE(transfer.link_seconds(), slow_link().seconds(8000, 1));
  EXPECT_DOUBLE_EQ(transfer.waited_seconds(), 0);
}

TEST(Link, WaitingAtOnceHidesNothing) {
  Host host;
  const auto block = host.filled(20000);
  Link link(slow_link());
  std::vector<std::byte> arrived(20000);
  const auto start = std::chrono::steady_clock::now();
  Transfer transfer = link.read(block, {{.at = 0, .memory = arrived.data(), .bytes = 20000}});
  transfer.wait();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GE(seconds, slow_link().seconds(20000, 1));
  EXPECT_GT(transfer.waited_seconds(), 0);
  EXPECT_LE(transfer.waited_seconds(), seconds);
}

TEST(Link, TransfersFollowEachOtherSoThatBandwidthIsShared) {
  Host host;
  const auto block = host.filled(5000);
  Link link(slow_link());
  std::vector<std::byte> arrived(5 * 5000);
  std::vector<Transfer> transfers;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < 5; ++i) {
    transfers.push_back(link.read(block, {{.at = 0, .memory = arrived.data() + i * 5000, .bytes = 5000}}));
  }
  transfers.back().wait();
  for (const Transfer& transfer : transfers) EXPECT_TRUE(transfer.done());
  EXPECT_GE(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
            5 * slow_link().seconds(5000, 1));
}

TEST(Link, AFailedTransferSaysWhyAndLeavesTheOthersAlone) {
  Host host;
  const auto block = host.filled(100);
  Link link({.name = "real"}, [](int64_t transfer) {
    if (transfer == 1) throw UserError("the cable was pulled");
  });
  std::vector<std::byte> arrived(300);
  std::vector<Transfer> transfers;
  for (int64_t i = 0; i < 3; ++i) {
    transfers.push_back(link.read(block, {{.at = 0, .memory = arrived.data() + i * 100, .bytes = 100}}));
  }
  EXPECT_NO_THROW(transfers[0].wait());
  try {
    transfers[1].wait();
    FAIL() << "a failed transfer was reported as complete";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "the cable was pulled");
  }
  EXPECT_NO_THROW(transfers[2].wait());
  EXPECT_EQ(arrived[299], expected_at(99));
}

TEST(Link, APatienceThatRunsOutNamesTheLinkAndTheTransferGoesOn) {
  Host host;
  const auto block = host.filled(1000);
  std::atomic<bool> go{false};
  Link link({.name = "stuck"}, [&](int64_t) { go.wait(false); });
  std::vector<std::byte> arrived(1000);
  Transfer transfer = link.read(block, {{.at = 0, .memory = arrived.data(), .bytes = 1000}});
  try {
    transfer.wait(0.001);
    FAIL() << "the tier has not answered";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("link stuck: found a transfer of 1000 bytes"), std::string::npos)
        << error.what();
  }
  go = true;
  go.notify_all();
  EXPECT_NO_THROW(transfer.wait());
  EXPECT_EQ(arrived[999], expected_at(999));
}

TEST(Link, ATransferThatIsGivenUpBeforeItBeginsTouchesNothing) {
  Host host;
  const auto block = host.filled(100);
  std::atomic<bool> go{false};
  Link link({.name = "real"}, [&](int64_t) { go.wait(false); });
  std::vector<std::byte> first(100);
  std::vector<std::byte> second(100);
  Transfer ahead = link.read(block, {{.at = 0, .memory = first.data(), .bytes = 100}});
  { const Transfer given_up = link.read(block, {{.at = 0, .memory = second.data(), .bytes = 100}}); }
  go = true;
  go.notify_all();
  ahead.wait();
  link.read(block, {{.at = 0, .memory = first.data(), .bytes = 1}}).wait();  // the queue is empty now
  EXPECT_EQ(second, std::vector<std::byte>(100));
  EXPECT_EQ(block.use_count(), 1);
  EXPECT_EQ(link.totals().transfers, 2);
}

TEST(Link, GivingUpDoesNotWaitForEmulatedTime) {
  Host host;
  const auto block = host.filled(1000);
  Link link({.name = "glacial", .bytes_per_s = 1e-3});
  std::vector<std::byte> arrived(1000);
  { const Transfer given_up = link.read(block, {{.at = 0, .memory = arrived.data(), .bytes = 1000}}); }
  EXPECT_EQ(host.ledger->current(Tier::host), 1000);
}

TEST(Link, ClosingFailsWhatHasNotBegun) {
  Host host;
  const auto block = host.filled(1000);
  std::vector<std::byte> arrived(2000);
  Transfer running;
  Transfer waiting;
  {
    Link link({.name = "glacial", .bytes_per_s = 1e-3});
    running = link.read(block, {{.at = 0, .memory = arrived.data(), .bytes = 1000}});
    waiting = link.read(block, {{.at = 0, .memory = arrived.data() + 1000, .bytes = 1000}});
  }
  try {
    waiting.wait();
    FAIL() << "nothing could carry it";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "link glacial: closed");
  }
}

TEST(Link, EmptyTransfersAreComplete) {
  Host host;
  Link link(slow_link());
  Transfer transfer = link.read(host.filled(10), {});
  EXPECT_TRUE(transfer.done());
  EXPECT_NO_THROW(transfer.wait());
  EXPECT_NO_THROW(Transfer().wait());
}

TEST(Hierarchy, KnowsItsTiersAndSaysWhichOneIsMissing) {
  const Hierarchy tiers(usual_tiers());
  EXPECT_TRUE(tiers.has(Tier::host));
  EXPECT_EQ(tiers.load(Tier::host).spec().name, "real");
  EXPECT_FALSE(tiers.emulated());
  try {
    (void)tiers.storage(Tier::disk);
    FAIL() << "there is no disk tier";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("no disk tier"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace kvarena::storage
