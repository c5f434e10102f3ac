// Promises never exceed the room, as long as only requests that fit are admitted.

#include "harness/engine/serving/admission.h"

#include <gtest/gtest.h>

#include <vector>

#include "harness/core/random.h"

namespace kvarena::serving {
namespace {

TEST(Admission, PromisesAddUpAndEndWithTheirPlaces) {
  Admission room(100);
  Admission::Place a = room.admit({.own = 60});
  EXPECT_TRUE(room.fits({.own = 40}));
  EXPECT_FALSE(room.fits({.own = 41}));
  Admission::Place b = room.admit({.own = 30});
  a.reset();
  EXPECT_EQ(room.promised(), 30);
  EXPECT_EQ(room.peak_promised(), 90);
  EXPECT_TRUE(room.fits({.own = 70}));
}

TEST(Admission, WhatIsUsedInTurnCountsOnceAtItsLargest) {
  Admission room(100);
  const Admission::Place a = room.admit({.own = 10, .in_turn = 50});
  EXPECT_TRUE(room.fits({.own = 40, .in_turn = 30}));  // 50 are there for whoever comes
  EXPECT_FALSE(room.fits({.own = 41, .in_turn = 30}));
  EXPECT_TRUE(room.fits({.own = 20, .in_turn = 70}));
  EXPECT_FALSE(room.fits({.own = 21, .in_turn = 70}));
}

TEST(Admission, RandomComingAndGoingNeverExceedsTheRoom) {
  const RandomStream random(3, "admission");
  Admission room(1000);
  std::vector<Admission::Place> inside;
  for (uint64_t draw = 0; draw < 4000; draw += 4) {
    const Promise promise{.own = static_cast<int64_t>(random.below(300, draw)),
                          .in_turn = static_cast<int64_t>(random.below(300, draw + 1))};
    if (room.fits(promise)) inside.push_back(room.admit(promise));
    int64_t own = 0, in_turn = 0;
    for (const Admission::Place& place : inside) {
      own += place->own;
      in_turn = std::max(in_turn, place->in_turn);
    }
    EXPECT_EQ(own, room.promised());
    EXPECT_LE(own + in_turn, 1000);
    if (!inside.empty() && random.below(2, draw + 2) == 0) {
      inside.erase(inside.begin() + static_cast<int64_t>(random.below(inside.size(), draw + 3)));
    }
  }
}

}  // namespace
}  // namespace kvarena::serving
