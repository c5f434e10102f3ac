#pragma once
// The runner's side of a worker: a process that answers requests until it dies.

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/core/error.h"
#include "harness/experiment/workers/last_lines.h"
#include "harness/experiment/workers/message.h"

namespace kvarena::experiment {

/// Limits of a worker for one answer; 0 = no limit.
struct Limits {
  double seconds = 0;
  int64_t memory_bytes = 0;  // resident and private: mapped checkpoints, which the system can drop, do not count
};

/// Calls of `tell` while an answer is awaited: after `first` seconds, and whenever it has taken twice as long.
struct Patience {
  double first = 600;
  std::function<void(double seconds)> tell;
};

/// Thrown when the worker died instead of answering. what() says how: "its worker was ended by signal 11 (Segmentation
/// fault)".
class WorkerDied : public UserError {
 public:
  WorkerDied(const std::string& how, std::string log, bool by_others)
      : UserError(how), log_(std::move(log)), by_others_(by_others) {}

  /// The last lines that it wrote.
  [[nodiscard]] const std::string& log() const { return log_; }
  /// Whether it was killed by neither itself nor the runner.
  [[nodiscard]] bool by_others() const { return by_others_; }

 private:
  std::string log_;
  bool by_others_;
};

/// For one thread, the one that made it: the system ends a worker when that thread ends, however it ends.
class WorkerProcess {
 public:
  /// Starts `words` (program and arguments) with "--channel N" behind them, N the descriptor of its socket. Its
  /// standard input is empty; what it prints goes to `on_line`. Throws UserError when no process can be made.
  WorkerProcess(const std::vector<std::string>& words, std::function<void(const std::string&)> on_line);
  /// Closes the channel and gives the worker a moment to end.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  /// Sends a request and returns the answer. Throws WorkerDied when no answer comes; the process has ended then, and
  /// one that took too long has said where it was.
  [[nodiscard]] nlohmann::json ask(const nlohmann::json& request, const Limits& limits, const Patience& patience = {});

  /// Kills the worker and throws WorkerDied with this reason: it broke a limit, or its answer is malformed.
  [[noreturn]] void end(const std::string& how) { end_by(SIGKILL, how); }

  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  [[noreturn]] void end_by(int signal, const std::string& how);
  void read_log();
  void send_some(std::string& outgoing) const;
  /// Reads what has arrived; false when the worker has closed the channel.
  bool read_some();
  /// Throws WorkerDied saying how the worker ended by itself.
  [[noreturn]] void mourn();
  /// Waits at most so long for the worker to end, then kills it. Returns waitpid's status.
  int reap(double seconds);

  pid_t pid_ = -1;
  int channel_ = -1;
  int log_ = -1;
  bool log_open_ = true;
  bool gone_ = false;
  FrameReader reader_;
  LastLines lines_;
};

}  // namespace kvarena::experiment
