#include "tests/support/cuda/fiber.h"

#include <cstdint>

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

void Fiber::start(std::byte* stack, size_t bytes, void (*entry)()) {
  constexpr int kSavedRegisters = 6;
  auto top = (reinterpret_cast<uintptr_t>(stack) + bytes) / 16 * 16;
  auto* word = reinterpret_cast<uintptr_t*>(top);
  *--word = 0;  // where entry would return to
  *--word = reinterpret_cast<uintptr_t>(entry);
  for (int i = 0; i < kSavedRegisters; ++i) *--word = 0;
  stack_pointer_ = word;
}

void Fiber::switch_to(Fiber& next) { kvarena_switch_stack(&stack_pointer_, next.stack_pointer_); }

#endif

}  // namespace emulated_cuda
