#include "harness/model/step_threads.h"

#include <sys/resource.h>

namespace kvarena {
namespace {

constexpr double kWindow = 0.2;     // seconds over which the system's interventions are counted
constexpr double kDisturbed = 100;  // preemptions a second: two threads had 40 alone and 200 beside a busy process
constexpr double kFirstWait = 1;    // seconds
constexpr double kLongestWait = 16;

/// Number of times that threads of this process were preempted.
int64_t preemptions() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

}  // namespace

void StepThreads::observe(int most, double seconds, int64_t put_aside) {
  seconds_ += seconds;
  preemptions_ += put_aside;
  if (seconds_ < kWindow) return;
  const bool disturbed = static_cast<double>(preemptions_) > kDisturbed * seconds_;
  calm_s_ = disturbed ? 0 : calm_s_ + seconds_;
  seconds_ = 0;
  preemptions_ = 0;
  if (disturbed && left_out_ < most - 1) {
    ++left_out_;
    wait_s_ = std::clamp(2 * wait_s_, kFirstWait, kLongestWait);
  } else if (calm_s_ >= wait_s_ && left_out_ > 0) {
    --left_out_;
    calm_s_ = 0;
  } else if (calm_s_ >= kLongestWait) {
    wait_s_ = 0;  // the other process has ended
  }
}

PacedStep::PacedStep(StepThreads& threads)
    : threads_(&threads),
      most_(omp_get_max_threads()),
      preemptions_(preemptions()),
      begin_(std::chrono::steady_clock::now()),
      scope_(threads.count(most_)) {}

PacedStep::~PacedStep() {
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin_;
  threads_->observe(most_, took.count(), preemptions() - preemptions_);
}

}  // namespace kvarena
