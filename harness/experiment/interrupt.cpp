// Ctrl-C during a run: once to stop cleanly, twice to stop at once.

#include <unistd.h>

#include <array>
#include <csignal>
#include <string_view>

#include "harness/core/error.h"
#include "harness/experiment/runner.h"

namespace kvarena::experiment {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

std::string_view announcement;
bool guarded = false;                                       // main thread only
constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};  // the last: a terminal or connection is lost
std::array<struct sigaction, kSignals.size()> before;

extern "C" void on_signal(int) {
  interrupted.store(true);
  // Nothing can be done about a stderr that is gone.
  for (const std::string_view text : {std::string_view("\n"), announcement, std::string_view("\n")}) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  }
}

}  // namespace

InterruptGuard::InterruptGuard(std::string_view doing) {
  KVARENA_ASSERT(!guarded, "two InterruptGuards at once");
  guarded = true;
  announcement = doing;
  interrupted.store(false);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;  // the second signal meets the default handler
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before[i]);
    if (before[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);  // nohup: it is not to be heard
  }
}

InterruptGuard::~InterruptGuard() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before[i], nullptr);
  guarded = false;
}

const std::atomic<bool>& InterruptGuard::flag() { return interrupted; }

}  // namespace kvarena::experiment
