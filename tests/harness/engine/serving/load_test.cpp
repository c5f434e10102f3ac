#include "harness/engine/serving/load.h"

#include <gtest/gtest.h>

namespace kvarena::serving {
namespace {

TEST(Load, AnOpenLoopKeepsItsTimesWhateverHappens) {
  Load load = Load::at_times({0, 0.5, 0.5});
  EXPECT_EQ(load.requests(), 3);
  EXPECT_EQ(load.take(), 0);
  load.left(9);
  EXPECT_EQ(load.next_time(), 0.5);
  EXPECT_EQ(load.take(), 1);
  EXPECT_EQ(load.take(), 2);
  EXPECT_FALSE(load.next_time().has_value());
}

TEST(Load, AClientAsksAgainAfterItsAnswer) {
  Load load = Load::of_clients(2, 5, 0.25);
  EXPECT_EQ(load.take(), 0);
  EXPECT_EQ(load.take(), 1);
  EXPECT_FALSE(load.next_time().has_value());
  load.left(3);
  EXPECT_EQ(load.next_time(), 3.25);
  EXPECT_EQ(load.take(), 2);
  load.left(4);
  load.left(5);
  load.left(6);  // five requests are all there are
  EXPECT_EQ(load.take(), 3);
  EXPECT_EQ(load.take(), 4);
  EXPECT_FALSE(load.next_time().has_value());
}

}  // namespace
}  // namespace kvarena::serving
