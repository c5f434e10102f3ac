#pragma once
// How many threads a pass gets on a machine that others use too.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "kernels/common/parallel.h"

namespace kvarena {

/// Threads that meet after every product go at the pace of the one that shares its core. While the system often puts
/// threads of this process aside, it gets one thread less, again and again down to one; after a while one more is
/// tried, and after each vain trial a while that is twice as long. No result depends on the number of threads.
class StepThreads {
 public:
  /// Of at most `most`.
  [[nodiscard]] int count(int most) const { return std::max(1, most - left_out_); }

  /// What a pass on count(most) threads took, and how often threads of this process lost a core to others in it.
  void observe(int most, double seconds, int64_t put_aside);

 private:
  double seconds_ = 0;  // of the window under way
  int64_t preemptions_ = 0;
  int left_out_ = 0;   // threads
  double calm_s_ = 0;  // since left_out_ changed
  double wait_s_ = 0;  // until one more is tried; 0: none has been left out for long
};

/// Gives what runs while it lives as many threads as `threads` says, and tells it how that went.
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
