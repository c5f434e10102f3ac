#include "harness/experiment/workers/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "harness/core/seconds_since.h"
#include "harness/experiment/workers/process_memory.h"

namespace kvarena::experiment {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kFarewell = 10;   // seconds for a worker to end once it is not wanted; it frees a model
constexpr double kLastWords = 1;   // seconds for one that hangs to print its frames
constexpr double kNoEnd = 1e9;     // seconds
constexpr int kMemoryLookMs = 50;  // between two looks at a worker's memory
constexpr int kLongestWaitMs = 60000;
constexpr int kNotStarted = 127;  // exit code of a child that could not become a worker

[[noreturn]] void fail_to_start(const char* what) {
  fail({.place = "a worker process", .found = fmt::format("{}: {}", what, std::strerror(errno))});
}

/// Runs in the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void become(char* const* words, char* const* environment, int channel, int log, pid_t runner) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != runner) ::_exit(kNotStarted);  // the runner died before the line above
  ::setpgid(0, 0);                                  // Ctrl-C is the runner's to hear
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGPIPE}) ::signal(number, SIG_DFL);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const bool streams =
      ::dup2(nothing, STDIN_FILENO) >= 0 && ::dup2(log, STDOUT_FILENO) >= 0 && ::dup2(log, STDERR_FILENO) >= 0;
  // Closes files that the runner inherited and that exec would keep. Before Linux 5.11 they are inherited.
  (void)::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  if (!streams || ::fcntl(channel, F_SETFD, 0) != 0) ::_exit(kNotStarted);
  // Asks the system to kill the worker first when memory runs out; where that fails, the system chooses.
  const int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) (void)!::write(score, "700", 3);
  ::execve(words[0], words, environment);
  ::_exit(kNotStarted);
}

/// The runner's environment, and for glibc's memory up to 4 GiB that wait for what comes next: caches are made and
/// freed for every method, and the first touch of a page costs more than a copy into it. Not in large pages: whole ones
/// are cleared where a part is touched, which cost a study 6% more than they saved.
std::vector<char*> worker_environment() {
  static std::string memory =
      "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=4294967296";
  std::vector<char*> all;
  for (char** at = environ; *at != nullptr; ++at) all.push_back(*at);
  if (std::getenv("GLIBC_TUNABLES") == nullptr) all.push_back(memory.data());
  all.push_back(nullptr);
  return all;
}

/// "its worker was ended by signal 11 (Segmentation fault)"; behind an exit code the last line that it wrote.
std::string how_it_ended(int status, const std::string& last_line) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return fmt::format("its worker was ended by signal {} ({}){}", number, ::strsignal(number),
                       number == SIGKILL ? ", as the system does when memory runs out" : "");
  }
  const int code = WEXITSTATUS(status);
  if (code == kNotStarted) {
    return "its worker could not be started: the program is gone, or the system allows too few files or too little "
           "memory "
           "(`ulimit -a`)";
  }
  return fmt::format("its worker ended with exit code {} without an answer{}", code,
                     last_line.empty() ? "" : fmt::format("; it wrote: {}", last_line));
}

bool sent_by_others(int status) {
  if (!WIFSIGNALED(status)) return false;
  const int number = WTERMSIG(status);
  return number == SIGKILL || number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
}

}  // namespace

WorkerProcess::WorkerProcess(const std::vector<std::string>& words, std::function<void(const std::string&)> on_line)
    : lines_(std::move(on_line)) {
  std::array<int, 2> channel{-1, -1};
  std::array<int, 2> log{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel.data()) != 0) fail_to_start("no socket");
  channel_ = channel[0];
  if (::pipe2(log.data(), O_CLOEXEC) != 0) {
    ::close(channel[0]);
    ::close(channel[1]);
    fail_to_start("no pipe");
  }
  log_ = log[0];
  ::fcntl(log_, F_SETFL, O_NONBLOCK);

  std::vector<std::string> all = words;  // made before the fork: the child must not allocate
  all.insert(all.end(), {"--channel", fmt::format("{}", channel[1])});
  std::vector<char*> pointers;
  for (std::string& word : all) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const std::vector<char*> environment = worker_environment();
  const pid_t runner = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(pointers.data(), environment.data(), channel[1], log[1], runner);
  const int reason = errno;
  ::close(channel[1]);
  ::close(log[1]);
  if (pid_ > 0) return;
  ::close(channel_);
  ::close(log_);
  errno = reason;
  fail_to_start("no process");
}

WorkerProcess::~WorkerProcess() {
  if (channel_ >= 0) ::close(channel_);
  if (!gone_) reap(kFarewell);
  ::close(log_);
}

nlohmann::json WorkerProcess::ask(const nlohmann::json& request, const Limits& limits, const Patience& patience) {
  KVARENA_ASSERT(!gone_, "a worker that died is asked");
  std::string outgoing = frame(request);
  const Clock::time_point begin = Clock::now();
  double notice = patience.tell ? patience.first : kNoEnd;
  while (true) {
    const double waited = seconds_since(begin);
    const double left = limits.seconds > 0 ? limits.seconds - waited : kNoEnd;
    if (left <= 0) end_by(SIGABRT, fmt::format("it took longer than the {} s that a sample may take", limits.seconds));
    if (waited >= notice) {
      patience.tell(notice);
      notice *= 2;
    }
    if (limits.memory_bytes > 0) {
      const auto held = own_memory(pid_);
      if (held && *held > limits.memory_bytes) {
        end(fmt::format("its worker held {} MiB, more than the {} MiB that it may", *held >> 20U,
                        limits.memory_bytes >> 20U));
      }
    }
    std::array<struct pollfd, 2> waiting{
        {{channel_, static_cast<short>(outgoing.empty() ? POLLIN : POLLIN | POLLOUT), 0}, {log_, POLLIN, 0}}};
    const int longest = limits.memory_bytes > 0 ? kMemoryLookMs : kLongestWaitMs;
    const int wait = static_cast<int>(std::min({longest * 1.0, left * 1e3 + 1, (notice - waited) * 1e3 + 1}));
    // A log whose writers are all gone would wake us at once, again and again.
    if (::poll(waiting.data(), log_open_ ? 2 : 1, wait) < 0 && errno != EINTR) mourn();
    if (waiting[1].revents != 0) read_log();
    if ((waiting[0].revents & POLLOUT) != 0) send_some(outgoing);
    if ((waiting[0].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    const bool open = read_some();
    std::optional<nlohmann::json> answer;
    try {
      answer = reader_.next();
    } catch (const UserError&) {
      end("its worker sent what is no answer");
    }
    if (answer) {
      read_log();
      return std::move(*answer);
    }
    if (!open) mourn();
  }
}

void WorkerProcess::read_log() {
  std::array<char, 1 << 14> piece{};
  while (log_open_) {
    const ssize_t length = ::read(log_, piece.data(), piece.size());
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return;  // nothing more for now
    if (length == 0) log_open_ = false;
    lines_.append({piece.data(), static_cast<size_t>(length)});
  }
}

void WorkerProcess::send_some(std::string& outgoing) const {
  const ssize_t length = ::send(channel_, outgoing.data(), outgoing.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (length > 0) {
    outgoing.erase(0, static_cast<size_t>(length));
  } else if (length < 0 && errno != EAGAIN && errno != EINTR) {
    outgoing.clear();  // the worker has gone, as reading will show
  }
}

bool WorkerProcess::read_some() {
  std::array<char, 1 << 16> piece{};
  const ssize_t length = ::recv(channel_, piece.data(), piece.size(), MSG_DONTWAIT);
  if (length < 0) return errno == EAGAIN || errno == EINTR;
  reader_.append({piece.data(), static_cast<size_t>(length)});
  return length > 0;
}

void WorkerProcess::end_by(int signal, const std::string& how) {
  ::kill(pid_, signal);
  reap(signal == SIGKILL ? kFarewell : kLastWords);
  read_log();
  lines_.finish();
  throw WorkerDied(how, lines_.text(), /*by_others=*/false);
}

void WorkerProcess::mourn() {
  const int status = reap(kFarewell);
  read_log();
  lines_.finish();
  throw WorkerDied(how_it_ended(status, lines_.last()), lines_.text(), sent_by_others(status));
}

int WorkerProcess::reap(double seconds) {
  const Clock::time_point begin = Clock::now();
  int status = 0;
  while (true) {
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == pid_ || (ended < 0 && errno != EINTR)) break;
    read_log();  // it may wait for us to read
    if (seconds_since(begin) > seconds) ::kill(pid_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  gone_ = true;
  return status;
}

}  // namespace kvarena::experiment
