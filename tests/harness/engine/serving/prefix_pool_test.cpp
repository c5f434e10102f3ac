// Places that a pool's device reserves of its link and of its places.

#include "harness/engine/serving/prefix_pool.h"

#include <gtest/gtest.h>

namespace kvarena {
namespace {

TEST(PrefixDevice, PlacesReloadsAroundLoadsAndLoadsBehindReloads) {
  PrefixDevice device({.link = {.name = "test", .bytes_per_s = 100}, .requests = 3});
  // 3.5 iterations of 1 s: windows 0 to 3.
  EXPECT_EQ(device.place_load(350, 1), 0);
  // After 4 drafts the reload would be in windows 2 and 3; it is in 4 and 5.
  const auto first = device.place_reload(200, 1, /*drafts=*/4);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->first, 4);
  EXPECT_EQ(first->verify, 5);
  const auto second = device.place_reload(200, 1, /*drafts=*/6);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->first, 6);
  EXPECT_EQ(second->verify, 7);
  EXPECT_EQ(device.place_load(100, 1), 8);
  for (int i = 0; i < 3; ++i) device.advance();
  EXPECT_EQ(device.place_load(10, 1), 0);  // what is left of the first one's last window
}

TEST(PrefixDevice, ReloadsTakePlacesFromTheirBeginningOn) {
  PrefixDevice device({.link = {.name = "free"}, .requests = 2});
  const serving::Admission::Place stays = device.take();
  // One place is left: one reload in each iteration.
  for (const int64_t iteration : {4, 3, 5, 2, 6, 1}) {
    const auto placement = device.place_reload(100, 1, /*drafts=*/5);
    ASSERT_TRUE(placement);
    EXPECT_EQ(placement->first, iteration);
    EXPECT_EQ(placement->verify, iteration);
  }
  device.advance();
  ASSERT_TRUE(device.has_place());
  const serving::Admission::Place first = device.take_reserved(1);
  EXPECT_FALSE(device.has_place());
  // Its place is in the ring until its iteration is over, and is taken for good then.
  EXPECT_EQ(device.place_reload(100, 1, /*drafts=*/8)->verify, 7);
  device.advance();
  EXPECT_FALSE(device.place_reload(100, 1, /*drafts=*/20));
}

TEST(PrefixDevice, CountsOnTheRateOfALinkThatEmulatesNone) {
  PrefixDevice device({.link = {.name = "socket"}, .bytes_per_s = 100});
  EXPECT_EQ(device.place_load(350, 1), 0);  // windows 0 to 3
  EXPECT_EQ(device.place_load(100, 1), 4);
}

TEST(PrefixDevice, WhatIsLongerThanAnythingCanBePlacedBeginsAtOnce) {
  PrefixDevice device({.link = {.name = "test", .bytes_per_s = 1}, .requests = 2});
  EXPECT_EQ(device.place_load(5000, 1), 0);
  EXPECT_EQ(device.place_reload(5000, 1, 5)->first, 0);
}

TEST(PrefixDevices, TheEmptiestIsNext) {
  PrefixDevices pool({.link = {.name = "free"}, .devices = 2, .requests = 2});
  PrefixDevice& first = pool.emptiest();
  const serving::Admission::Place one = first.take();
  PrefixDevice& second = pool.emptiest();
  EXPECT_NE(&first, &second);
  const serving::Admission::Place two = second.take(), three = second.take();
  EXPECT_FALSE(second.has_place());
  EXPECT_EQ(&pool.emptiest(), &first);
}

}  // namespace
}  // namespace kvarena
