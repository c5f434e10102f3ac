#include "tests/support/cuda/fiber.h"

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated_cuda {

#if defined(KVARENA_FIBER_UCONTEXT)

void Fiber::start(std::byte* stack, size_t bytes, void (*entry)()) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
}

void Fiber::switch_to(Fiber& next) { swapcontext(&context_, &next.context_); }

#else

// swapcontext asks the kernel for the signal mask each time, which costs a hundred times what this does. Registers that
// a called function must keep, by the System V ABI.
asm(R"(
.text
.type kvarena_switch_stack, @function
kvarena_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kvarena_switch_stack, . - kvarena_switch_stack
)");
extern "C" void kvarena_switch_stack(void** save, void* load);

namespace {

/// Makes the memory below `top` a stack from which `entry` will run; its stack pointer.
void* prepared(uintptr_t top, void (*entry)()) {
  constexpr int kSavedRegisters = 6;
  auto* word = reinterpret_cast<uintptr_t*>(top);
  *--word = 0;  // where entry would return to
  *--word = reinterpret_cast<uintptr_t>(entry);
  for (int i = 0; i < kSavedRegisters; ++i) *--word = 0;
  return word;
}

uintptr_t top_of(const std::byte* stack, size_t bytes) {
  return (reinterpret_cast<uintptr_t>(stack) + bytes) / 16 * 16;
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__)

// The sanitizer is told which stack runs, or what lies on a stack would look to it like what lies beside one.
namespace {
Fiber* left = nullptr;     // by the last switch
Fiber* reached = nullptr;  // by it
}  // namespace

void Fiber::start(std::byte* stack, size_t bytes, void (*entry)()) {
  const uintptr_t top = top_of(stack, bytes);
  // An earlier fiber on this stack left frames that never returned; a new fiber does not know how deep.
  const void* deepest = stack_ == stack ? stack_pointer_ : stack;
  __asan_unpoison_memory_region(deepest, top - reinterpret_cast<uintptr_t>(deepest));
  entry_ = entry;
  stack_ = stack;
  stack_bytes_ = bytes;
  stack_pointer_ = prepared(top, begin);
}

void Fiber::begin() {
  arrive(nullptr);
  reached->entry_();
}

void Fiber::arrive(void* fake_stack) {
  __sanitizer_finish_switch_fiber(fake_stack, &left->stack_, &left->stack_bytes_);
}

void Fiber::switch_to(Fiber& next) {
  left = this;
  reached = &next;
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, next.stack_, next.stack_bytes_);
  kvarena_switch_stack(&stack_pointer_, next.stack_pointer_);
  arrive(fake_stack);
}

#else

void Fiber::start(std::byte* stack, size_t bytes, void (*entry)()) {
  stack_pointer_ = prepared(top_of(stack, bytes), entry);
}

void Fiber::switch_to(Fiber& next) { kvarena_switch_stack(&stack_pointer_, next.stack_pointer_); }

#endif

#endif

}  // namespace emulated_cuda
