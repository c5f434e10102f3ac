// Number of threads of a pass while other programs use the machine.

#include "harness/model/step_threads.h"

#include <gtest/gtest.h>

namespace kvarena {
namespace {

constexpr double kStep = 0.01;  // seconds

/// Steps for `seconds` in which the system puts a thread aside `rate` times a second while more than `free` threads
/// run. Returns the steps that had more threads than that.
int go_on(StepThreads& threads, int most, double seconds, int free, double rate = 150) {
  int crowded = 0;
  double due = 0;
  for (double t = 0; t < seconds; t += kStep) {
    const bool more = threads.count(most) > free;
    crowded += more ? 1 : 0;
    due += more ? rate * kStep : 0;
    const auto times = static_cast<int64_t>(due);
    due -= static_cast<double>(times);
    threads.observe(most, kStep, times);
  }
  return crowded;
}

TEST(StepThreads, AMachineOfOnesOwnGivesAllThreads) {
  StepThreads threads;
  EXPECT_EQ(threads.count(2), 2);
  EXPECT_EQ(go_on(threads, 16, 10, /*free=*/16), 0);
  go_on(threads, 16, 10, /*free=*/0, /*rate=*/40);  // preemptions of an idle system
  EXPECT_EQ(threads.count(16), 16);
}

TEST(StepThreads, ABusyCoreIsLeftToOthersAndTriedSeldom) {
  StepThreads threads;
  EXPECT_LT(go_on(threads, 2, 1, /*free=*/1), 30);
  EXPECT_EQ(threads.count(2), 1);
  EXPECT_LT(go_on(threads, 2, 100, /*free=*/1), 300) << "of 10,000 steps";
  EXPECT_EQ(threads.count(1), 1);
}

TEST(StepThreads, AsManyAreLeftOutAsAreNeeded) {
  StepThreads threads;
  go_on(threads, 8, 1, /*free=*/5);
  EXPECT_EQ(threads.count(8), 5);
  StepThreads crowded;
  go_on(crowded, 8, 2, /*free=*/0);
  EXPECT_EQ(crowded.count(8), 1);
}

TEST(StepThreads, TheyComeBackWhenTheOthersHaveGone) {
  StepThreads threads;
  go_on(threads, 4, 60, /*free=*/2);
  EXPECT_LE(threads.count(4), 3);
  go_on(threads, 4, 40, /*free=*/4);
  EXPECT_EQ(threads.count(4), 4);
}

TEST(PacedStep, SetsThreadsWhileItLives) {
  const kernels::ScopedThreads all(4);
  StepThreads threads;
  threads.observe(4, 1, 1000);
  {
    const PacedStep step(threads);
    EXPECT_EQ(omp_get_max_threads(), 3);
  }
  EXPECT_EQ(omp_get_max_threads(), 4);
}

}  // namespace
}  // namespace kvarena
