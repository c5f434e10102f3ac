#include "harness/experiment/workers/crash_frames.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

namespace kvarena::experiment {
namespace {

constexpr int kFrames = 12;                 // printed
constexpr int kOwnFrames = 2;               // the handler's, and the one through which the system calls it
constexpr size_t kStackBytes = 128 * 1024;  // of the handler: registers of AVX-512 and AMX take 12 KiB of it
constexpr const char* kSelf = "/proc/self/exe";

std::array<char, kStackBytes> stack;
std::array<char, 4096> program;  // path of the file behind kSelf

// The functions below run while the process crashes: they allocate nothing.

void print(const char* text) { (void)!::write(STDERR_FILENO, text, std::strlen(text)); }

void print_hex(uintptr_t value) {
  std::array<char, 2 * sizeof value + 1> digits{};
  size_t at = digits.size() - 1;
  do {
    digits[--at] = "0123456789abcdef"[value % 16];
    value /= 16;
  } while (value > 0);
  print("0x");
  print(&digits[at]);
}

/// `address` lies in an instruction of the frame.
void print_frame(uintptr_t address) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(address), &info) == 0 || info.dli_fname == nullptr) {
    print_hex(address);
  } else {
    print(std::strcmp(info.dli_fname, kSelf) == 0 ? program.data() : info.dli_fname);
    print("+");
    print_hex(address - reinterpret_cast<uintptr_t>(info.dli_fbase));
    if (info.dli_sname != nullptr) {
      print(" ");
      print(info.dli_sname);
    }
  }
  print("\n");
}

void on_crash(int number) {
  const int reason = errno;
  std::array<void*, kFrames + kOwnFrames> frames{};
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  print("\ninnermost frames, of which `addr2line -Cfpe FILE OFFSET` says more:\n");
  for (int i = kOwnFrames; i < count; ++i) {
    const auto address = reinterpret_cast<uintptr_t>(frames[static_cast<size_t>(i)]);
    print_frame(i == kOwnFrames ? address : address - 1);  // a caller's is the instruction behind the call
  }
  errno = reason;
  (void)::raise(number);  // held back until this returns, when nobody handles it any more
}

}  // namespace

void print_frames_of_crashes() {
  const ssize_t length = ::readlink(kSelf, program.data(), program.size() - 1);
  if (length < 0) std::strcpy(program.data(), kSelf);
  void* nothing = nullptr;
  (void)::backtrace(&nothing, 1);  // the first call loads a library, which no handler may do
  stack_t own{};
  ::sigaltstack(nullptr, &own);
  if ((own.ss_flags & SS_DISABLE) != 0) {
    own = {.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
    ::sigaltstack(&own, nullptr);
  }
  struct sigaction action {};
  action.sa_handler = on_crash;
  action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    struct sigaction before {};
    ::sigaction(number, nullptr, &before);
    if ((before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL) ::sigaction(number, &action, nullptr);
  }
}

}  // namespace kvarena::experiment
