#pragma once
// Number of threads of a pass on a machine that other programs use too.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "kernels/common/parallel.h"

namespace kvarena {

/// Threads that synchronise after every product are as slow as the one that shares its core. While the system often
/// preempts threads of this process, passes use one thread less, again and again down to one; after a while one more is
/// tried, and after each failed trial the wait doubles. No result depends on the number of threads.
class StepThreads {
 public:
  /// Threads of the next pass, at most `most`.
  [[nodiscard]] int count(int most) const { return std::max(1, most - left_out_); }

  /// Records the seconds of a pass on count(most) threads, and how often threads of this process were preempted in it.
  void observe(int most, double seconds, int64_t put_aside);

 private:
  double seconds_ = 0;  // duration of the current window
  int64_t preemptions_ = 0;
  int left_out_ = 0;   // threads
  double calm_s_ = 0;  // seconds since left_out_ changed
  double wait_s_ = 0;  // seconds until one more is tried; 0: none has been left out for long
};

/// Sets the number of threads that `threads` says while it lives, and reports the pass to it at the end.
class PacedStep {
 public:
  explicit PacedStep(StepThreads& threads);
  ~PacedStep();
  PacedStep(const PacedStep&) = delete;
  PacedStep& operator=(const PacedStep&) = delete;

 private:
  StepThreads* threads_;
  int most_;
  int64_t preemptions_;
  std::chrono::steady_clock::time_point begin_;
  kernels::ScopedThreads scope_;
};

}  // namespace kvarena
