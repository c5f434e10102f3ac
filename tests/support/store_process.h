#pragma once
// `kvarena store` as a process of its own.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace kvarena::testing {

class StoreProcess {
 public:
  /// Starts it, and waits until it answers.
  explicit StoreProcess(const std::string& listen) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) std::abort();
    child_ = ::fork();
    if (child_ < 0) std::abort();
    if (child_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      ::execl(KVARENA_BINARY_DIR "/bin/kvarena", "kvarena", "store", "--listen", listen.c_str(), "--memory-mib", "64",
              nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    out_ = ::fdopen(ends[0], "r");
    address_ = line();
  }
  ~StoreProcess() { (void)end(SIGKILL); }
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }
  /// Ends it; returns the line that it says then.
  std::string end(int signal = SIGTERM) {
    if (child_ < 0) return "";
    ::kill(child_, signal);
    std::string last = line();
    ::waitpid(std::exchange(child_, -1), nullptr, 0);
    (void)std::fclose(out_);
    return last;
  }

 private:
  std::string line() {
    std::array<char, 200> text{};
    if (std::fgets(text.data(), text.size(), out_) == nullptr) return "";
    const std::string read = text.data();
    return read.substr(0, read.find('\n'));
  }

  pid_t child_ = -1;
  std::FILE* out_ = nullptr;
  std::string address_;
};

}  // namespace kvarena::testing
