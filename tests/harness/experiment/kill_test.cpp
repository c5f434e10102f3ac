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

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

/// A run in a process of its own.
pid_t start(Rig& rig) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    rig.evaluator.before_sample = [](const EvalTask&) { std::this_thread::sleep_for(microseconds(700)); };
    (void)rig.run();
    ::_exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    ::_exit(1);
  }
}

/// Time of a whole run on this machine, at this moment.
microseconds time_a_run(Rig& rig) {
  const Clock::time_point begun = Clock::now();
  int status = 0;
  ::waitpid(start(rig), &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return std::chrono::duration_cast<microseconds>(Clock::now() - begun);
}

/// True when the run came to its end before the kill.
bool run_for(Rig& rig, microseconds life) {
  const pid_t child = start(rig);
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
  const auto fails = [](const EvalTask& task, const PlannedCell& cell) {
    return cell.record.method_name == "kivi" && task.sample_id == "needle-4" ? "it always fails here" : "";
  };
  Rig undisturbed(folder / "u.db");
  undisturbed.evaluator.failure = fails;
  (void)undisturbed.run();
  const std::string expected = undisturbed.digest();

  const RandomStream random(seed, "moments of death");
  Rig timed(folder / "t.db");
  timed.evaluator.failure = fails;
  const microseconds whole = time_a_run(timed);
  int kills = 0;
  // Lives are drawn as shares of a whole run, whatever the machine's speed; sweeps go on until enough of them were cut.
  for (uint64_t sweep = 0; sweep < 6 || kills < 12; ++sweep) {
    ASSERT_LT(sweep, 200U) << "runs of " << whole.count()
                           << " us end before they can be killed: the test shows nothing";
    Rig rig(folder / fmt::format("k{}.db", sweep));
    rig.evaluator.failure = fails;
    uint64_t attempt = 0;
    // Lives grow with the attempts, so that a machine that has become slower comes to an end too.
    const auto life = [&] {
      const double share = 0.9 * random.uniform(sweep * 1000 + attempt) + 0.02 * static_cast<double>(attempt);
      return microseconds(static_cast<int64_t>(share * static_cast<double>(whole.count())));
    };
    while (!run_for(rig, life())) {
      ++kills;
      ASSERT_LT(++attempt, 400U);
    }
    EXPECT_EQ(rig.digest(), expected) << "seed " << seed << ", sweep " << sweep << " after " << attempt << " kills";
    EXPECT_EQ(rig.run().evaluated, 0);
    EXPECT_EQ(rig.digest(), expected);
  }
  std::printf("killed %d times\n", kills);
}

}  // namespace
}  // namespace kvarena::experiment
