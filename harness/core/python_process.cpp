#include "harness/core/python_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"

namespace kvarena {
namespace {

using nlohmann::json;

constexpr int kNotStarted = 127;  // exit code of a child that could not become Python

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::string interpreter() { return variable("KVARENA_PYTHON", "python3"); }

/// The program's environment, and one order for sets of strings.
std::vector<char*> python_environment() {
  static std::string order = "PYTHONHASHSEED=0";
  std::vector<char*> all;
  for (char** at = environ; *at != nullptr; ++at) all.push_back(*at);
  if (std::getenv("PYTHONHASHSEED") == nullptr) all.push_back(order.data());
  all.push_back(nullptr);
  return all;
}

/// Runs in the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void become(char* const* words, char* const* environment, int channel, int inherited, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a script that hangs ends with the worker
  if (::getppid() != parent) ::_exit(kNotStarted);
  ::fcntl(channel, F_SETFD, 0);
  if (inherited >= 0) ::fcntl(inherited, F_SETFD, 0);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);  // what a script prints is no output of the program
  ::execvpe(words[0], words, environment);
  ::_exit(kNotStarted);
}

}  // namespace

std::chrono::seconds python_patience() {
  const std::string text = variable("KVARENA_PYTHON_SECONDS", "60");
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error == std::errc() && end == text.data() + text.size() && seconds > 0) return std::chrono::seconds(seconds);
  fail({.place = "KVARENA_PYTHON_SECONDS", .found = text, .expected = "a number of seconds"});
}

void PythonProcess::start(std::vector<std::string> arguments, int inherited) {
  stop();
  std::array<int, 2> channel{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel.data()) != 0) {
    fail({.place = place_, .found = fmt::format("no socket for Python: {}", std::strerror(errno))});
  }
  channel_ = channel[0];
  arguments.insert(arguments.begin(), interpreter());
  arguments.push_back(fmt::format("{}", channel[1]));
  std::vector<char*> pointers;
  for (std::string& word : arguments) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const std::vector<char*> environment = python_environment();
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(pointers.data(), environment.data(), channel[1], inherited, parent);
  ::close(channel[1]);
  if (pid_ < 0) fail({.place = place_, .found = fmt::format("no process for it: {}", std::strerror(errno))});
}

void PythonProcess::stop() {
  if (channel_ >= 0) ::close(channel_);
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  channel_ = -1;
  pid_ = -1;
  received_.clear();
}

void PythonProcess::send(std::string_view message) {
  const std::string line = fmt::format("{}\n", message);
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t length = ::send(channel_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return;
    sent += static_cast<size_t>(length);
  }
}

bool PythonProcess::await(std::chrono::steady_clock::time_point deadline) const {
  using std::chrono::milliseconds;
  int ready = -1;
  while (ready < 0) {  // interrupted
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd readable{.fd = channel_, .events = POLLIN, .revents = 0};
    ready = ::poll(&readable, 1, static_cast<int>(std::max(left, milliseconds(0)).count()));
  }
  return ready > 0;
}

std::optional<json> PythonProcess::receive(const Deadline& deadline) {
  std::array<char, 1 << 14> piece{};
  size_t end = received_.find('\n');
  while (end == std::string::npos) {
    if (deadline && !await(*deadline)) return std::nullopt;
    const ssize_t length = ::recv(channel_, piece.data(), piece.size(), 0);
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) tell_end();
    received_.append(piece.data(), static_cast<size_t>(length));
    end = received_.find('\n');
  }
  const std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  json message = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!message.is_discarded()) return message;
  stop();
  fail({.place = place_,
        .found = fmt::format("\"{}\" from its Python process", line.substr(0, 80)),
        .expected = "a line of JSON"});
}

void PythonProcess::tell_end() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  stop();
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotStarted) {
    fail({.place = place_,
          .found = fmt::format("no program \"{}\"", interpreter()),
          .expected = "Python 3.10 or newer",
          .action = "put its path into KVARENA_PYTHON"});
  }
  fail({.place = place_,
        .found = WIFSIGNALED(status) ? fmt::format("its Python process ended by signal {} ({})", WTERMSIG(status),
                                                   ::strsignal(WTERMSIG(status)))
                                     : fmt::format("its Python process ended with exit code {}", WEXITSTATUS(status))});
}

}  // namespace kvarena
