#include "harness/model/ranks/rank_processes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "harness/core/error.h"

namespace kvarena {
namespace {

using namespace std::chrono_literals;

/// A shell in the place of a rank: its words get "--rank 1/3 --driver PID".
std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script, "rank"}; }

TEST(RankProcesses, KilledOnesAreNamedBeforeThoseThatEndedForIt) {
  RankProcesses ranks(shell("case $2 in 1/3) exit 3;; *) kill -9 $$;; esac"), 3);
  std::string said;
  while (said.find("rank 1") == std::string::npos || said.find("rank 2") == std::string::npos) said = ranks.lost(10ms);
  EXPECT_TRUE(said.starts_with("rank 2 of 3 was ended by signal 9 (Killed)")) << said;
  EXPECT_TRUE(said.ends_with("; rank 1 of 3 ended with exit code 3")) << said;
  EXPECT_EQ(ranks.pids(), (std::vector<pid_t>{-1, -1}));
}

TEST(RankProcesses, ThoseThatLiveAreNotLostAndEndWithTheObject) {
  pid_t pid = -1;
  {
    RankProcesses ranks(shell("test $1 = --rank && test $3 = --driver && test $4 = $PPID && sleep 1; exit 1"), 2);
    EXPECT_EQ(ranks.lost(50ms), "");
    pid = ranks.pids().at(0);
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(RankProcesses, AProgramThatIsNotThereIsNamed) {
  try {
    const RankProcesses ranks({"/no/such/program"}, 2);
    FAIL() << "started";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("/no/such/program"), std::string::npos) << error.what();
  }
}

TEST(RankProcesses, ARankDiesOnlyWithItsOwnDriver) { EXPECT_THROW(die_with(::getpid()), UserError); }

}  // namespace
}  // namespace kvarena
