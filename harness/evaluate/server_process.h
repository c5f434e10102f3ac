#pragma once
// A server that a run starts, with the settings of a method.

#include <sys/types.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace kvarena::evaluate {

/// A command that serves as long as this object is there. It runs in a process group of its own, which is asked to end
/// (SIGTERM) and killed 10 s later with all that it started, also where this process is killed.
class ServerProcess {
 public:
  explicit ServerProcess(std::vector<std::string> words);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  [[nodiscard]] bool alive();
  /// Asks `ready` again and again. Throws UserError with what the server wrote last when it ends or `seconds` are up.
  void wait_until(const std::function<bool()>& ready, double seconds);

 private:
  void end();
  [[nodiscard]] std::string last_words() const;

  std::vector<std::string> words_;
  std::FILE* log_;       // what it writes
  int alive_ = -1;       // a pipe that is open as long as this process wants the server
  pid_t guardian_ = -1;  // the process that looks after it; -1 once it is gone
};

}  // namespace kvarena::evaluate
