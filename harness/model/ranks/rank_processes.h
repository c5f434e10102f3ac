#pragma once
// Ranks that are processes on this machine.

#include <sys/types.h>

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace kvarena {

/// Processes of the ranks 1 and on. They end with this object, and with this process, however it ends.
class RankProcesses {
 public:
  /// Starts `words` (program and arguments) for each of the ranks 1 .. ranks-1, with "--rank I/N --driver PID" behind
  /// them. Their standard input is empty, what they print goes to our standard error. Throws UserError when no process
  /// can be made.
  RankProcesses(const std::vector<std::string>& words, int64_t ranks);
  /// Gives the processes a moment to end, then kills them.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// How processes have ended, killed ones first: "rank 1 of 2 was ended by signal 9 (Killed)"; "" while all live.
  /// Waits so long for the first to end. Thread-safe.
  [[nodiscard]] std::string lost(std::chrono::milliseconds wait);

  /// Process ids of rank 1 and on; -1 for one that has ended.
  [[nodiscard]] std::vector<pid_t> pids() const;

 private:
  struct Process {
    pid_t pid = -1;
    bool ended = false;
    int status = 0;  // waitpid's, when ended
  };

  void start(std::vector<std::string> words);
  /// Collects processes that have ended; returns whether all have.
  bool reap();
  void finish();

  mutable std::mutex mutex_;  // guards processes_
  std::vector<Process> processes_;
};

/// Makes this process, a rank, die with the driver. Throws UserError when the driver has ended already.
void die_with(pid_t driver);

}  // namespace kvarena
