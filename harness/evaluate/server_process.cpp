#include "harness/evaluate/server_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "harness/core/error.h"

namespace kvarena::evaluate {
namespace {

constexpr int kNotStarted = 127;
constexpr int kGraceMs = 10'000;
constexpr int kLookMs = 50;

[[noreturn]] void become_server(char* const* words, int log) {
  for (const int number : {SIGINT, SIGTERM, SIGPIPE}) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const bool streams =
      ::dup2(nothing, STDIN_FILENO) >= 0 && ::dup2(log, STDOUT_FILENO) >= 0 && ::dup2(log, STDERR_FILENO) >= 0;
  (void)::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  if (streams) ::execvp(words[0], words);
  ::_exit(kNotStarted);
}

/// Runs in a child between fork and exit, with async-signal-safe calls only: starts the server, and ends its group when
/// it ends or nobody holds the other end of the pipe any more.
[[noreturn]] void guard(char* const* words, int alive, int log) {
  ::setpgid(0, 0);  // Ctrl-C is the run's to hear
  const pid_t server = ::fork();
  if (server == 0) become_server(words, log);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_IGN);
  if (alive > 0) (void)::close_range(0, static_cast<unsigned>(alive) - 1, 0);  // nobody waits for files of this process
  (void)::close_range(static_cast<unsigned>(alive) + 1, ~0U, 0);
  int status = 0;
  struct pollfd wanted {
    alive, POLLIN, 0
  };
  while (server > 0 && ::poll(&wanted, 1, kLookMs) == 0) {
    if (::waitpid(server, &status, WNOHANG) == server) ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : kNotStarted);
  }
  ::kill(0, SIGTERM);
  for (int waited = 0; waited < kGraceMs && ::waitpid(server, &status, WNOHANG) == 0; waited += kLookMs) {
    ::poll(nullptr, 0, kLookMs);
  }
  ::kill(0, SIGKILL);
  ::_exit(0);
}

}  // namespace

ServerProcess::ServerProcess(std::vector<std::string> words) : words_(std::move(words)), log_(std::tmpfile()) {
  std::array<int, 2> ends{-1, -1};
  const auto refuse = [&](const char* what) {
    const int reason = errno;
    if (log_ != nullptr) std::fclose(log_);
    fail({.place = fmt::format("the server {}", words_.front()),
          .found = fmt::format("{}: {}", what, std::strerror(reason))});
  };
  if (log_ == nullptr) refuse("no file for what it writes");
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) refuse("no pipe");
  std::vector<char*> pointers;
  for (std::string& word : words_) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const int log = ::fileno(log_);
  guardian_ = ::fork();
  if (guardian_ == 0) {
    ::close(ends[1]);
    guard(pointers.data(), ends[0], log);
  }
  const int reason = errno;
  ::close(ends[0]);
  alive_ = ends[1];
  if (guardian_ > 0) return;
  ::close(alive_);
  errno = reason;
  refuse("no process");
}

ServerProcess::~ServerProcess() {
  end();
  std::fclose(log_);
}

void ServerProcess::end() {
  if (alive_ >= 0) ::close(alive_);
  alive_ = -1;
  if (guardian_ > 0) ::waitpid(guardian_, nullptr, 0);
  guardian_ = -1;
}

bool ServerProcess::alive() {
  if (guardian_ > 0 && ::waitpid(guardian_, nullptr, WNOHANG) == guardian_) guardian_ = -1;
  return guardian_ > 0;
}

std::string ServerProcess::last_words() const {
  constexpr long kMost = 600;
  std::fseek(log_, 0, SEEK_END);
  const long size = std::ftell(log_), from = std::max(0L, size - kMost);
  std::string text(static_cast<size_t>(size - from), '\0');
  std::fseek(log_, from, SEEK_SET);
  text.resize(std::fread(text.data(), 1, text.size(), log_));
  while (text.ends_with('\n')) text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return text;
}

void ServerProcess::wait_until(const std::function<bool()>& ready, double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPause{100};
  const auto begin = Clock::now();
  while (!ready()) {
    const bool here = alive();
    if (here && std::chrono::duration<double>(Clock::now() - begin).count() < seconds) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    end();
    fail({.place = fmt::format("the server {}", fmt::join(words_, " ")),
          .found = fmt::format("{}; it wrote: {}",
                               here ? fmt::format("no answer within {} s", seconds) : "that it ended", last_words()),
          .expected = "an answer of /health"});
  }
}

}  // namespace kvarena::evaluate
