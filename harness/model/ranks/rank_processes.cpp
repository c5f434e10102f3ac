#include "harness/model/ranks/rank_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "harness/core/error.h"

namespace kvarena {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFarewell{5000};  // for a rank to end once it was sent home; it frees its weights
constexpr milliseconds kLook{5};

/// "was ended by signal 9 (Killed)".
std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return fmt::format("was ended by signal {} ({}){}", number, ::strsignal(number),
                       number == SIGKILL ? ", as the system does when memory runs out" : "");
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

struct SpawnActions {
  posix_spawn_file_actions_t value{};
  SpawnActions() { ::posix_spawn_file_actions_init(&value); }
  ~SpawnActions() { ::posix_spawn_file_actions_destroy(&value); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
};

}  // namespace

RankProcesses::RankProcesses(const std::vector<std::string>& words, int64_t ranks) {
  try {
    for (int64_t rank = 1; rank < ranks; ++rank) {
      std::vector<std::string> all = words;
      all.insert(all.end(), {"--rank", fmt::format("{}/{}", rank, ranks), "--driver", fmt::format("{}", ::getpid())});
      start(std::move(all));
    }
  } catch (const UserError&) {
    finish();
    throw;
  }
}

RankProcesses::~RankProcesses() { finish(); }

void RankProcesses::start(std::vector<std::string> words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  SpawnActions actions;
  ::posix_spawn_file_actions_addopen(&actions.value, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions.value, STDERR_FILENO,
                                     STDOUT_FILENO);  // answers are the driver's to print
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, pointers[0], &actions.value, nullptr, pointers.data(), environ);
  if (error != 0) fail({.place = "a rank's process", .found = fmt::format("{}: {}", words[0], std::strerror(error))});
  processes_.push_back({.pid = pid});
}

bool RankProcesses::reap() {
  for (Process& process : processes_) {
    if (!process.ended) process.ended = ::waitpid(process.pid, &process.status, WNOHANG) == process.pid;
  }
  return std::ranges::all_of(processes_, &Process::ended);
}

std::string RankProcesses::lost(milliseconds wait) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point end = Clock::now() + wait;
  while (true) {
    reap();
    const bool some = std::ranges::any_of(processes_, &Process::ended);
    if (some || Clock::now() >= end) break;
    std::this_thread::sleep_for(std::min<milliseconds>(kLook, wait));
  }
  std::string said;
  for (const bool killed : {true, false}) {  // killed ones first: others end because of them
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (!processes_[i].ended || WIFSIGNALED(processes_[i].status) != killed) continue;
      said += fmt::format("{}rank {} of {} {}", said.empty() ? "" : "; ", i + 1, processes_.size() + 1,
                          how_it_ended(processes_[i].status));
    }
  }
  return said;
}

std::vector<pid_t> RankProcesses::pids() const {
  const std::lock_guard lock(mutex_);
  std::vector<pid_t> pids;
  for (const Process& process : processes_) pids.push_back(process.ended ? -1 : process.pid);
  return pids;
}

void RankProcesses::finish() {
  const Clock::time_point end = Clock::now() + kFarewell;
  while (!reap()) {
    if (Clock::now() > end) {
      for (const Process& process : processes_) {
        if (!process.ended) ::kill(process.pid, SIGKILL);
      }
    }
    std::this_thread::sleep_for(kLook);
  }
}

void die_with(pid_t driver) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == driver) return;
  fail({.place = "--driver",
        .found = fmt::format("process {}, which did not start this one, or is gone", driver),
        .action = "it is for ranks that a driver starts; others join by --join HOST:PORT"});
}

}  // namespace kvarena
