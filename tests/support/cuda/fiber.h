#pragma once
// A thread of execution with a stack of its own that runs until it hands over: what an emulated GPU thread is.

#include <cstddef>

#if !defined(__x86_64__) || defined(__SANITIZE_ADDRESS__)  // AddressSanitizer follows swapcontext
#define KVARENA_FIBER_UCONTEXT
#include <ucontext.h>
#endif

namespace emulated_cuda {

/// One side of a switch: a fiber that was started, or the caller's own stack when it is left for the first time.
class Fiber {
 public:
  /// From the next switch to it, `entry` runs on `stack` (of `bytes`). entry never returns; it switches away for good.
  void start(std::byte* stack, size_t bytes, void (*entry)());
  /// Leaves this one, which runs now, for `next`; returns when someone switches back.
  void switch_to(Fiber& next);

 private:
#if defined(KVARENA_FIBER_UCONTEXT)
  ucontext_t context_{};
#else
  void* stack_pointer_ = nullptr;
#endif
};

}  // namespace emulated_cuda
