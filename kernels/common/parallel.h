#pragma once
// Threads for kernels. Work is cut into items whose results do not depend on who computes them or in which order,
// so no result ever depends on the number of threads.

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>

namespace kvarena::kernels {

/// Threads the next parallel_for may use (OMP_NUM_THREADS, omp_set_num_threads; 1 inside a parallel region).
[[nodiscard]] inline int64_t thread_count() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

/// Calls body(i) for i in 0 .. count-1, each once, on up to thread_count() threads, which begin them in ascending
/// order. body must not throw.
template <class Body>
void parallel_for(int64_t count, const Body& body) {
  const int threads = static_cast<int>(std::min<int64_t>(thread_count(), count));
  if (threads <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for schedule(monotonic : dynamic, 1) num_threads(threads)
  for (int64_t i = 0; i < count; ++i) body(i);
}

/// parallel_for() of work of about `operations` multiply-adds in all: the caller computes alone when that takes less
/// time than threads need to synchronise. On a busy machine synchronising can take a thousand times longer.
template <class Body>
void parallel_for(int64_t count, int64_t operations, const Body& body) {
  constexpr int64_t kWorthThreads = 256 * 1024;
  if (operations >= kWorthThreads) return parallel_for(count, body);
  for (int64_t i = 0; i < count; ++i) body(i);
}

/// Sets the number of threads while it lives.
class ScopedThreads {
 public:
  explicit ScopedThreads(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~ScopedThreads() { omp_set_num_threads(before_); }
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  int before_;
};

/// 64-byte aligned memory that grows and is not cleared; one per thread and purpose, so that a step allocates nothing
/// once the largest shape was seen.
template <class T>
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { std::free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Returns at least `count` elements of indeterminate value; invalidates the result of earlier calls.
  [[nodiscard]] T* get(int64_t count) {
    if (count > capacity_) {
      std::free(data_);
      capacity_ = 0;
      const size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
      data_ = static_cast<T*>(std::aligned_alloc(64, bytes));
      if (data_ == nullptr) throw std::bad_alloc();
      capacity_ = count;
    }
    return data_;
  }

 private:
  T* data_ = nullptr;
  int64_t capacity_ = 0;
};

/// Throws std::logic_error when the contract of a kernel call is broken: a mistake of the program, never the user's.
inline void require(bool condition, const char* message) {
  if (!condition) [[unlikely]]
    throw std::logic_error(message);
}

}  // namespace kvarena::kernels
