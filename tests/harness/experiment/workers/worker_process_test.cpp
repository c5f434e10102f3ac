// Workers live and die with their runner.

#include "harness/experiment/workers/worker_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "harness/experiment/workers/process_memory.h"
#include "tests/harness/experiment/support.h"

namespace kvarena::experiment {
namespace {

using nlohmann::json;

const std::vector<std::string> kWords = {KVARENA_BINARY_DIR "/bin/breaking_worker"};

json start_message() {
  return {{"ask", "start"}, {"setup", {{"config", experiment::kSmallConfig}, {"breaks", json::array()}}}};
}

TEST(WorkerProcess, EndsWhenItsRunnerIsKilled) {
  // Orphans come to us instead of to whoever reaps on this machine.
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t runner = ::fork();
  if (runner == 0) {
    WorkerProcess worker(kWords, nullptr);
    (void)worker.ask(start_message(), {});
    const pid_t pid = worker.pid();
    (void)!::write(told[1], &pid, sizeof pid);
    ::pause();
  }
  pid_t worker = 0;
  ASSERT_EQ(::read(told[0], &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
  ::kill(runner, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(runner, &status, 0), runner);
  ASSERT_EQ(::waitpid(worker, &status, 0), worker) << "waits for as long as it lives: the test's time limit ends it";
  EXPECT_TRUE(WIFSIGNALED(status) || WIFEXITED(status));
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  ::close(told[0]);
  ::close(told[1]);
}

TEST(WorkerProcess, AProgramThatCannotBeStartedIsSaidToBeSo) {
  WorkerProcess worker({"/no/such/program"}, nullptr);
  try {
    (void)worker.ask(start_message(), {});
    FAIL() << "a program that is not there answered";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("could not be started"), std::string::npos) << error.what();
  }
}

TEST(WorkerProcess, MemoryThatItSharesCountsAsItsOwn) {
  constexpr size_t kBytes = size_t{32} << 20U;
  const int64_t before = own_memory(::getpid()).value();
  void* shared = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  std::memset(shared, 1, kBytes);
  EXPECT_GE(own_memory(::getpid()).value() - before, static_cast<int64_t>(kBytes * 3 / 4));
  ::munmap(shared, kBytes);
}

TEST(WorkerProcess, IsNotInTheGroupThatCtrlCReaches) {
  WorkerProcess worker(kWords, nullptr);
  EXPECT_EQ(worker.ask(start_message(), {}), (json{{"ok", nullptr}}));
  EXPECT_EQ(::getpgid(worker.pid()), worker.pid());
  EXPECT_NE(::getpgid(worker.pid()), ::getpgrp());
}

TEST(WorkerProcess, InheritsNoDescriptorButItsOwn) {
  const int other = ::open(KVARENA_SOURCE_DIR "/README.md", O_RDONLY);
  ASSERT_GE(other, 0);
  WorkerProcess worker(kWords, nullptr);
  (void)worker.ask(start_message(), {});
  std::set<std::string> open;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", worker.pid()))) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    open.insert(target.substr(0, target.find(':')));
  }
  EXPECT_EQ(open, (std::set<std::string>{"/dev/null", "pipe", "socket"}));
  ::close(other);
}

TEST(WorkerProcess, AnErrorIsAnAnswerAndItGoesOn) {
  WorkerProcess worker(kWords, nullptr);
  EXPECT_TRUE(worker.ask({{"ask", "start"}, {"setup", {{"config", "no JSON"}}}}, {}).contains("error"));
  EXPECT_TRUE(worker.ask({{"nothing", "asked"}}, {}).contains("error"));
  EXPECT_EQ(worker.ask(start_message(), {}), (json{{"ok", nullptr}}));
  EXPECT_TRUE(worker.ask({{"ask", "begin_model"}, {"model", "unheard of"}}, {}).contains("error"));
}

}  // namespace
}  // namespace kvarena::experiment
