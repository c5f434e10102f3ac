#pragma once
// A thread of execution with a stack of its own that runs until it hands over: what an emulated GPU thread is.

#include <cstddef>

#if !defined(__x86_64__)
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
#if defined(__SANITIZE_ADDRESS__)
  static void begin();
  static void arrive(void* fake_stack);
  void (*entry_)() = nullptr;
  const void* stack_ = nullptr;  // lowest address; of the caller's own, known once it was left
  size_t stack_bytes_ = 0;
#endif
#endif
};

}  // namespace emulated_cuda
