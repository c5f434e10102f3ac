#pragma once
// A Python script that comes with the program, as a process beside it. Both write lines of JSON into a socket.

#include <sys/types.h>

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvarena {

/// How long an import may take, and an answer that should come soon: KVARENA_PYTHON_SECONDS, 60 where it is not set.
/// Throws UserError where it is no number.
[[nodiscard]] std::chrono::seconds python_patience();

class PythonProcess {
 public:
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;

  /// `place` is named in errors: what the process is for.
  explicit PythonProcess(std::string place) : place_(std::move(place)) {}
  ~PythonProcess() { stop(); }
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;

  /// Runs `arguments`, whose first is the script, and the socket's descriptor behind them, by KVARENA_PYTHON, else
  /// python3. Python's sets have one order in all runs. `inherited`: another descriptor for it, -1 for none.
  void start(std::vector<std::string> arguments, int inherited = -1);
  [[nodiscard]] bool running() const { return pid_ > 0; }
  /// Kills it, where it runs.
  void stop();

  /// Writes a line. Where the process has ended, receive() says so.
  void send(std::string_view message);
  /// The next line, or nothing at the deadline. Throws UserError with how the process ended, or where it wrote what is
  /// no JSON; it is stopped then.
  [[nodiscard]] std::optional<nlohmann::json> receive(const Deadline& deadline = {});

 private:
  [[nodiscard]] bool await(std::chrono::steady_clock::time_point deadline) const;
  [[noreturn]] void tell_end();

  std::string place_;
  pid_t pid_ = -1;
  int channel_ = -1;
  std::string received_;
};

}  // namespace kvarena
