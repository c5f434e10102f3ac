#include "harness/cost_model/resource_rings.h"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/core/random.h"

namespace kvarena::cost_model {
namespace {

constexpr double giga = 1e9;

RingSettings settings(int64_t windows, double memory = 96 * giga) {
  return {.windows = windows, .memory_bytes = memory, .weight_bytes = 50 * giga};
}

ReloadRequest request() {
  return {.bytes = 4 * giga,
          .link_bandwidth = 50 * giga,
          .iteration_seconds = 35.7e-3,
          .resident_bytes = 10 * giga,
          .draft_length = 30};
}

TEST(ResourceRings, RequestsOfOneIterationStandThreeWindowsApart) {
  // A reload is 80 ms, 2.241 iterations, so it spans 3 windows of 26.67 ms each.
  ResourceRings rings(settings(64));
  for (const int64_t verify : {30, 27, 33, 24, 36}) {
    const auto placement = rings.admit(request());
    ASSERT_TRUE(placement);
    EXPECT_EQ(placement->verify, verify);
    EXPECT_EQ(placement->first, verify - 2);
    EXPECT_NEAR(rings.link_seconds(verify), 26.6667e-3, 1e-7);
  }
  EXPECT_EQ(rings.link_seconds(21), 0);
  EXPECT_EQ(rings.bytes_in_flight(30), 4 * giga);
}

TEST(ResourceRings, FrontSpreadLeavesTheRemainderForTheLastWindow) {
  RingSettings front = settings(64);
  front.spread = LinkSpread::front;
  ResourceRings rings(front);
  ASSERT_TRUE(rings.admit(request()));
  EXPECT_NEAR(rings.link_seconds(28), 35.7e-3, 1e-9);
  EXPECT_NEAR(rings.link_seconds(29), 35.7e-3, 1e-9);
  EXPECT_NEAR(rings.link_seconds(30), 80e-3 - 2 * 35.7e-3, 1e-9);
}

TEST(ResourceRings, MemoryInFlightBindsToo) {
  // 96 - 50 - 39.9 leaves 6.1 GB: one reload of 4 GB at a time, however short it is on the link.
  ResourceRings rings(settings(16));
  ReloadRequest fast = request();
  fast.link_bandwidth = 1000 * giga;
  fast.resident_bytes = 39.9 * giga;
  fast.draft_length = 5;
  for (const int64_t verify : {5, 4, 6, 3, 7, 2, 8, 1}) {
    const auto placement = rings.admit(fast);
    ASSERT_TRUE(placement);
    EXPECT_EQ(placement->verify, verify);
  }
  fast.resident_bytes = 43 * giga;
  EXPECT_FALSE(rings.admit(fast));
}

TEST(ResourceRings, AReloadLongerThanTheHorizonWaits) {
  ResourceRings rings(settings(4));
  ReloadRequest slow = request();
  slow.link_bandwidth = giga;
  EXPECT_FALSE(rings.admit(slow));
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(rings.bytes_in_flight(i), 0);
}

TEST(ResourceRings, LoadsTakeTheEarliestWindowsAndReloadsGoAroundThem) {
  ResourceRings rings(settings(64));
  ReloadRequest small = request();
  small.bytes = giga;  // 20 ms: less than a window, more than what a second one leaves of it
  for (const int64_t window : {0, 1}) {
    const auto placement = rings.load(small);
    ASSERT_TRUE(placement);
    EXPECT_EQ(placement->first, window);
    EXPECT_EQ(placement->verify, window);
    EXPECT_NEAR(rings.link_seconds(window), 20e-3, 1e-12);
    EXPECT_EQ(rings.bytes_in_flight(window), 0);  // what it brings is resident
  }
  const auto large = rings.load(request());
  ASSERT_TRUE(large);
  EXPECT_EQ(large->first, 2);
  EXPECT_EQ(large->verify, 4);

  ReloadRequest soon = request();
  soon.draft_length = 3;
  const auto reload = rings.admit(soon);
  ASSERT_TRUE(reload);
  EXPECT_EQ(reload->first, 5);
  EXPECT_EQ(reload->verify, 7);
  EXPECT_EQ(rings.load(request())->first, 8);

  ReloadRequest beyond = small;
  beyond.resident_bytes = 46.5 * giga;  // of 46 beside the weights
  EXPECT_FALSE(rings.load(beyond));
  beyond = small;
  beyond.bytes = 63 * 35.7e-3 * 50 * giga * 1.01;
  EXPECT_FALSE(rings.load(beyond));
}

TEST(ResourceRings, TimeMovesReservationsForward) {
  ResourceRings rings(settings(64));
  ASSERT_TRUE(rings.admit(request()));
  for (int64_t i = 0; i < 28; ++i) rings.advance();
  EXPECT_EQ(rings.bytes_in_flight(0), 4 * giga);
  EXPECT_EQ(rings.bytes_in_flight(2), 4 * giga);
  EXPECT_EQ(rings.bytes_in_flight(3), 0);
  for (int64_t i = 0; i < 3; ++i) rings.advance();
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(rings.bytes_in_flight(i), 0) << i;
}

TEST(ResourceRings, NeverReserveMoreThanThereIsInTenThousandScenarios) {
  const uint64_t seed = 20260517;
  RecordProperty("seed", std::to_string(seed));
  int64_t admitted = 0, refused = 0;
  for (uint64_t scenario = 0; scenario < 10000; ++scenario) {
    const RandomStream random(seed + scenario, "rings");
    uint64_t next = 0;
    const auto draw = [&](double low, double high) { return low + (high - low) * random.uniform(next++); };
    RingSettings ring = settings(2 + static_cast<int64_t>(random.below(60, next++)), draw(51, 120) * giga);
    ring.spread = random.below(2, next++) == 0 ? LinkSpread::uniform : LinkSpread::front;
    ResourceRings rings(ring);
    const double iteration = draw(0.001, 0.1), bandwidth = draw(1, 100) * giga, resident = draw(0, 60) * giga;
    for (int step = 0; step < 30; ++step) {
      if (random.below(3, next++) == 0) rings.advance();
      const ReloadRequest wanted{.bytes = draw(0.01, 20) * giga,
                                 .link_bandwidth = bandwidth,
                                 .iteration_seconds = iteration,
                                 .resident_bytes = resident,
                                 .draft_length = 1 + static_cast<int64_t>(random.below(80, next++))};
      const auto placement = rings.admit(wanted);
      (placement ? admitted : refused) += 1;
      if (placement) {
        EXPECT_GE(placement->first, 1);
        EXPECT_LT(placement->verify, ring.windows);
        EXPECT_GE(static_cast<double>(placement->span()) * iteration * bandwidth, wanted.bytes * (1 - 1e-9));
      }
      for (int64_t i = 0; i < ring.windows; ++i) {
        ASSERT_LE(rings.link_seconds(i), iteration * (1 + 1e-8)) << "scenario " << scenario;
        if (rings.bytes_in_flight(i) > 0) {
          ASSERT_LE(ring.weight_bytes + resident + rings.bytes_in_flight(i), ring.memory_bytes * (1 + 1e-8))
              << "scenario " << scenario;
        }
      }
    }
  }
  EXPECT_GT(admitted, 10000) << "the test must admit";
  EXPECT_GT(refused, 10000) << "and refuse";
}

}  // namespace
}  // namespace kvarena::cost_model
