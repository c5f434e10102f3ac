// SIGKILL at random moments, then again: the database ends as if nothing had happened.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tests/harness/experiment/support.h"

namespace kvarena::experiment {
namespace {

/// One run in a process of its own; true when it came to its end before the kill.
bool run_for(Rig& rig, std::chrono::microseconds life) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      rig.judge.before_sample = [](const JudgeTask&) { std::this_thread::sleep_for(std::chrono::microseconds(700)); };
      (void)rig.run();
      ::_exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
  }
  std::this_thread::sleep_for(life);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "the run failed instead of being killed";
  return WIFEXITED(status);
}

TEST(Kill, AtAnyMomentAndRunningAgainEndsWithTheSameContent) {
  const uint64_t seed = 20261121;
  RecordProperty("seed", std::to_string(seed));
  TemporaryFolder folder;
  const auto fails = [](const JudgeTask& task, const PlannedCell& cell) {
    return cell.record.method_name == "kivi" && task.sample_id == "needle-4" ? "it always fails here" : "";
  };
  Rig undisturbed(folder / "u.db");
  undisturbed.judge.failure = fails;
  (void)undisturbed.run();
  const std::string expected = undisturbed.digest();

  const RandomStream random(seed, "moments of death");
  int kills = 0;
  for (uint64_t sweep = 0; sweep < 6; ++sweep) {
    Rig rig(folder / fmt::format("k{}.db", sweep));
    rig.judge.failure = fails;
    uint64_t attempt = 0;
    // Lives of 0 to 30 ms grow with the attempts, so that a slow machine comes to an end too.
    while (!run_for(rig, std::chrono::microseconds(random.below(30000, sweep * 1000 + attempt) + attempt * 500))) {
      ++kills;
      ASSERT_LT(++attempt, 400U);
    }
    EXPECT_EQ(rig.digest(), expected) << "seed " << seed << ", sweep " << sweep << " after " << attempt << " kills";
    EXPECT_EQ(rig.run().judged, 0);
    EXPECT_EQ(rig.digest(), expected);
  }
  EXPECT_GE(kills, 6) << "nothing was ever killed: the test shows nothing";
  std::printf("killed %d times\n", kills);
}

}  // namespace
}  // namespace kvarena::experiment
