#include "harness/engine/serving/load.h"

#include <gtest/gtest.h>

namespace kvarena::serving {
namespace {

TEST(Load, AnOpenLoopKeepsItsTimesWhateverHappens) {
  Load load = Load::at_times({0, 0.5, 0.5});
  EXPECT_EQ(load.requests(), 3);
  EXPECT_EQ(load.take(), 0);
  load.left(0, 9);
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
  load.left(0, 3);
  EXPECT_EQ(load.next_time(), 3.25);
  EXPECT_EQ(load.take(), 2);
  load.left(2, 4);
  load.left(1, 5);
  load.left(3, 6);  // five requests are all there are
  EXPECT_EQ(load.take(), 3);
  EXPECT_EQ(load.take(), 4);
  EXPECT_FALSE(load.next_time().has_value());
}

TEST(Load, TurnsFollowTheirSessionsAnswersAndNoOthers) {
  Load load = Load::of_sessions({{.start_s = 1, .turns = {{.request = 0}, {.request = 3, .think_s = 2}}},
                                 {.start_s = 0.5, .turns = {{.request = 1}, {.request = 2, .think_s = 0.25}}}});
  EXPECT_EQ(load.requests(), 4);
  EXPECT_EQ(load.next_time(), 0.5);
  EXPECT_EQ(load.take(), 1);
  EXPECT_EQ(load.next_time(), 1);
  EXPECT_EQ(load.take(), 0);
  EXPECT_FALSE(load.next_time().has_value());
  load.left(0, 4);
  EXPECT_EQ(load.next_time(), 6);
  load.left(1, 5);  // a session that began earlier and answers later
  EXPECT_EQ(load.next_time(), 5.25);
  EXPECT_EQ(load.take(), 2);
  load.left(2, 5.5);
  EXPECT_EQ(load.take(), 3);
  load.left(3, 7);
  EXPECT_FALSE(load.next_time().has_value());
}

}  // namespace
}  // namespace kvarena::serving
