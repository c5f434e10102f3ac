// A kernel's threads, block after block: each thread is a fiber.
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cuda/emulated_memory.h"
#include "tests/support/cuda/fiber.h"

namespace emulated_cuda {
namespace {

#if defined(KVARENA_FIBER_UCONTEXT) || defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 256 * 1024;
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif
constexpr unsigned kWarp = 32, kMostThreads = 1024;

std::string text_of(const std::source_location& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

struct Thread {
  Fiber fiber;
  uint3 index;
  bool returned = false;
  const char* waits_for = nullptr;
  std::source_location where;
};

/// Lanes of one warp that meet under one mask. Two buffers: a lane may come to the next rendezvous before another has
/// read the last, but not to the one after that.
struct Rendezvous {
  unsigned warp = 0;
  uint32_t mask = 0, arrived = 0;
  unsigned count = 0;
  std::source_location where;
  Words brought[2][kWarp];
};

/// The block that runs now.
struct Machine {
  std::mt19937_64 random{1};
  std::unique_ptr<std::byte[]> stacks;  // of kMostThreads; pages are touched when they are used
  std::vector<Thread> threads;
  std::vector<unsigned> ready;  // the last runs next
  std::vector<unsigned> at_barrier;
  std::deque<Rendezvous> meetings;  // stays in place as it grows
  std::vector<unsigned char> shared;
  size_t shared_bytes = 0;
  const std::function<void()>* kernel = nullptr;
  std::string error;
  Fiber host;
  unsigned current = 0, live = 0;
};
Machine machine;

void shuffle(std::vector<unsigned>& threads) { std::shuffle(threads.begin(), threads.end(), machine.random); }

/// The thread that runs goes to sleep or has returned; the next one that can run does, or else the host.
void hand_over() {
  Thread& me = machine.threads[machine.current];
  if (machine.ready.empty() || !machine.error.empty()) return me.fiber.switch_to(machine.host);
  const unsigned next = machine.ready.back();
  machine.ready.pop_back();
  if (next == machine.current) return;
  machine.current = next;
  threadIdx = machine.threads[next].index;
  me.fiber.switch_to(machine.threads[next].fiber);
}

void release(std::vector<unsigned> waiting) {
  shuffle(waiting);
  for (const unsigned thread : waiting) machine.threads[thread].waits_for = nullptr;
  machine.ready.insert(machine.ready.end(), waiting.begin(), waiting.end());
}

void wait(const char* what, const std::source_location& where) {
  Thread& me = machine.threads[machine.current];
  me.waits_for = what;
  me.where = where;
  hand_over();
}

void thread_main() {
  (*machine.kernel)();
  machine.threads[machine.current].returned = true;
  --machine.live;
  if (machine.live > 0 && machine.at_barrier.size() == machine.live) release(std::exchange(machine.at_barrier, {}));
  hand_over();
  std::abort();
}

Rendezvous& rendezvous_of(unsigned warp, uint32_t mask) {
  for (Rendezvous& rendezvous : machine.meetings) {
    if (rendezvous.warp == warp && rendezvous.mask == mask) return rendezvous;
  }
  Rendezvous& rendezvous = machine.meetings.emplace_back();
  rendezvous.warp = warp;
  rendezvous.mask = mask;
  return rendezvous;
}

/// Threads that nobody will wake.
void require_all_returned() {
  if (machine.error.empty() && machine.live == 0) return;
  std::string error = machine.error;
  if (error.empty()) {
    const auto stuck = std::find_if(machine.threads.begin(), machine.threads.end(),
                                    [](const Thread& thread) { return thread.waits_for != nullptr; });
    error = std::to_string(machine.live) + " threads wait for ever; thread " +
            std::to_string(stuck - machine.threads.begin()) + " for " + stuck->waits_for + " at " +
            text_of(stuck->where);
  }
  machine.meetings.clear();
  throw std::logic_error("emulated CUDA: " + error);
}

void run_block(unsigned threads) {
  machine.threads.resize(threads);
  machine.ready.resize(threads);
  machine.at_barrier.clear();
  machine.error.clear();
  machine.live = threads;
  for (Rendezvous& rendezvous : machine.meetings) rendezvous.arrived = 0;
  for (unsigned i = 0; i < threads; ++i) {
    Thread& thread = machine.threads[i];
    thread.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
    thread.returned = false;
    thread.waits_for = nullptr;
    thread.fiber.start(machine.stacks.get() + i * kStackBytes, kStackBytes, thread_main);
    machine.ready[i] = i;
  }
  shuffle(machine.ready);
  std::fill_n(machine.shared.data(), machine.shared_bytes, kPoison);
  std::fill_n(machine.shared.data() + machine.shared_bytes, kGuardBytes, kGuard);
  machine.current = machine.ready.back();
  machine.ready.pop_back();
  threadIdx = machine.threads[machine.current].index;
  machine.host.switch_to(machine.threads[machine.current].fiber);
  require_all_returned();
  require_guard(machine.shared.data() + machine.shared_bytes, "shared memory");
}

}  // namespace

void require_guard(const unsigned char* guard, const char* what) {
  if (std::any_of(guard, guard + kGuardBytes, [](unsigned char byte) { return byte != kGuard; })) {
    throw std::logic_error(std::string("emulated CUDA: written outside ") + what);
  }
}

const Words* meet(uint32_t mask, const Words& mine, const std::source_location& where) {
  const unsigned first = machine.current / kWarp * kWarp, own = machine.current % kWarp;
  if ((mask >> own & 1) == 0) fail("a lane is not in its own mask", where);
  Rendezvous& rendezvous = rendezvous_of(machine.current / kWarp, mask);
  if (rendezvous.arrived == 0) {
    rendezvous.where = where;
  } else if (rendezvous.where.line() != where.line() || rendezvous.where.file_name() != where.file_name()) {
    fail(("lanes of one mask are elsewhere, at " + text_of(rendezvous.where)).c_str(), where);
  }
  Words* brought = rendezvous.brought[rendezvous.count % 2];
  brought[own] = mine;
  rendezvous.arrived |= 1u << own;
  if (rendezvous.arrived != mask) {
    wait("lanes of its warp", where);
    return brought;
  }
  rendezvous.arrived = 0;
  ++rendezvous.count;
  std::vector<unsigned> waiting;
  for (unsigned i = 0; i < kWarp; ++i) {
    if (i != own && (mask >> i & 1) != 0) waiting.push_back(first + i);
  }
  waiting.push_back(machine.current);
  release(std::move(waiting));
  hand_over();
  return brought;
}

namespace {

/// A thread that gives up leaves its stack as it is: nothing may live there that needs an end.
void say_error(const std::string& what, const std::source_location& where) {
  machine.error = text_of(where) + ": thread " + std::to_string(machine.current) + ": " + what;
}
[[noreturn]] void give_up() {
  machine.threads[machine.current].fiber.switch_to(machine.host);
  std::abort();
}

}  // namespace

void sync_block(const std::source_location& where) {
  if (!machine.at_barrier.empty()) {
    const std::source_location& other = machine.threads[machine.at_barrier.front()].where;
    if (other.line() != where.line() || other.file_name() != where.file_name()) {
      say_error("threads of the block wait at another barrier, " + text_of(other), where);
      give_up();
    }
  }
  machine.at_barrier.push_back(machine.current);
  machine.threads[machine.current].where = where;
  if (machine.at_barrier.size() < machine.live) return wait("the threads of its block", where);
  release(std::exchange(machine.at_barrier, {}));
  hand_over();
}

void* shared_memory() { return machine.shared.data(); }
uint32_t lane() { return machine.current % kWarp; }

void fail(const char* what, const std::source_location& where) {
  say_error(what, where);
  give_up();
}

void set_seed(uint64_t seed) { machine.random.seed(seed); }
uint64_t drawn() { return machine.random(); }

void run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& kernel) {
  const unsigned threads = block.x * block.y * block.z;
  if (threads == 0 || threads > kMostThreads)
    throw std::logic_error("emulated CUDA: a block of no or too many threads");
  if (grid.y > 65535 || grid.z > 65535) throw std::logic_error("emulated CUDA: a grid wider than 65535 in y or z");
  if (shared_bytes > 227 * 1024) throw std::logic_error("emulated CUDA: more shared memory than a block can have");
  if (machine.stacks == nullptr) machine.stacks.reset(new std::byte[kMostThreads * kStackBytes]);
  machine.shared.resize(shared_bytes + kGuardBytes);
  machine.shared_bytes = shared_bytes;
  machine.kernel = &kernel;
  gridDim = grid;
  blockDim = block;
  std::vector<unsigned> blocks(static_cast<size_t>(grid.x) * grid.y * grid.z);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<unsigned>(i);
  shuffle(blocks);
  for (const unsigned i : blocks) {
    blockIdx = {i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y};
    run_block(threads);
  }
}

}  // namespace emulated_cuda
