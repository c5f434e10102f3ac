#pragma once
// Ranks that are processes on this machine.

#include <sys/types.h>

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace kvarena {

/// They end with this object, and with this process, however it ends.
class RankProcesses {
 public:
  /// Starts `words` (program and arguments) for each of the ranks 1 .. ranks-1, with "--rank I/N --driver PID" behind
  /// them. Their standard input is empty, what they print goes to our standard error. Throws UserError when no process
  /// can be made.
  RankProcesses(const std::vector<std::string>& words, int64_t ranks);
  /// Gives them a moment to end.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// How those ended that have ended, killed ones first: "rank 1 of 2 was ended by signal 9 (Killed)"; "" while all
  /// live. Waits for the first so long. From any thread.
  [[nodiscard]] std::string lost(std::chrono::milliseconds wait);

  /// Of rank 1 and on; -1 for one that has ended.
  [[nodiscard]] std::vector<pid_t> pids() const;

 private:
  struct Process {
    pid_t pid = -1;
    bool ended = false;
    int status = 0;  // waitpid's, when ended
  };

  void start(std::vector<std::string> words);
  /// Looks who has ended; whether all have.
  bool reap();
  void finish();

  mutable std::mutex mutex_;  // of processes_
  std::vector<Process> processes_;
};

/// What a rank that was started so does first: dies with the driver. Throws UserError when that is gone already.
void die_with(pid_t driver);

}  // namespace kvarena
