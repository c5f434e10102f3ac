#include "harness/engine/serving/batch_schedule.h"

#include <gtest/gtest.h>

#include "harness/core/error.h"

namespace kvarena::serving {
namespace {

TEST(BatchSchedule, StepsComeFirstAndPromptsFillThePass) {
  BatchSchedule schedule({.pass_tokens = 10, .max_running = 4});
  EXPECT_EQ(schedule.submit(7, 12, 1), "");
  EXPECT_EQ(schedule.submit(3, 20, 1), "");
  EXPECT_EQ(schedule.admit(), (std::vector<int64_t>{7, 3}));
  PassPlan plan = schedule.next();
  ASSERT_EQ(plan.chunks.size(), 1U);  // the first come fills it
  EXPECT_EQ(plan.chunks[0].request, 7);
  EXPECT_EQ(plan.chunks[0].tokens, 10);
  schedule.prefilled(7, 10);
  plan = schedule.next();
  ASSERT_EQ(plan.chunks.size(), 2U);
  EXPECT_EQ(plan.chunks[0].tokens, 2);
  EXPECT_EQ(plan.chunks[1].request, 3);
  EXPECT_EQ(plan.chunks[1].tokens, 8);
  schedule.prefilled(7, 2);
  schedule.prefilled(3, 8);
  plan = schedule.next();
  EXPECT_EQ(plan.steps, (std::vector<int64_t>{7}));
  ASSERT_EQ(plan.chunks.size(), 1U);
  EXPECT_EQ(plan.chunks[0].tokens, 9);
}

TEST(BatchSchedule, APromptThatTurnsOutShorterLeavesRoomToTheNext) {
  BatchSchedule schedule({.pass_tokens = 10, .max_running = 4});
  EXPECT_EQ(schedule.submit(0, 100, 1), "");
  EXPECT_EQ(schedule.submit(1, 50, 1), "");
  EXPECT_EQ(schedule.admit(), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(schedule.next().chunks.size(), 1U);
  schedule.prefilled(0, 10);
  schedule.correct(0, 4);
  PassPlan plan = schedule.next();
  ASSERT_EQ(plan.chunks.size(), 2U);
  EXPECT_EQ(plan.chunks[0].tokens, 4);
  EXPECT_EQ(plan.chunks[1].tokens, 6);
  schedule.correct(0, 0);
  plan = schedule.next();
  EXPECT_EQ(plan.steps, (std::vector<int64_t>{0}));
  ASSERT_EQ(plan.chunks.size(), 1U);
  EXPECT_EQ(plan.chunks[0].tokens, 9);
}

TEST(BatchSchedule, AdmitsByBytesAndInOrder) {
  BatchSchedule schedule({.cache_bytes = 100});
  EXPECT_EQ(schedule.submit(0, 1, 60), "");
  EXPECT_EQ(schedule.submit(1, 1, 50), "");
  EXPECT_EQ(schedule.submit(2, 1, 10), "");  // would fit, but does not overtake
  EXPECT_EQ(schedule.admit(), (std::vector<int64_t>{0}));
  EXPECT_EQ(schedule.waiting(), 2);
  schedule.hold(0, 20);  // compressed
  EXPECT_EQ(schedule.admit(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(schedule.reserved_bytes(), 80);
  schedule.leave(1);
  EXPECT_EQ(schedule.reserved_bytes(), 30);
  EXPECT_EQ(schedule.peak_reserved_bytes(), 80);
}

TEST(BatchSchedule, RefusesWhatCouldNeverFit) {
  BatchSchedule schedule({.cache_bytes = 100});
  EXPECT_EQ(schedule.submit(0, 4096, 101),
            "request of 4096 prompt tokens: found up to 101 bytes of cache, expected at most 100, the budget of all "
            "requests together; raise cache_bytes, cut the prompt or ask for fewer tokens");
  EXPECT_EQ(schedule.waiting(), 0);
}

TEST(BatchSchedule, AWaitingRequestMayLeaveToo) {
  BatchSchedule schedule({.cache_bytes = 100});
  EXPECT_EQ(schedule.submit(0, 1, 100), "");
  EXPECT_EQ(schedule.submit(1, 1, 100), "");
  (void)schedule.admit();
  schedule.leave(1);
  schedule.leave(0);
  EXPECT_TRUE(schedule.admit().empty());
  EXPECT_EQ(schedule.reserved_bytes(), 0);
}

TEST(BatchSchedule, APassMustHoldAStepOfEach) {
  EXPECT_THROW(BatchSchedule({.pass_tokens = 8, .max_running = 8}), UserError);
  EXPECT_THROW(BatchSchedule({.max_running = 0}), UserError);
}

}  // namespace
}  // namespace kvarena::serving
