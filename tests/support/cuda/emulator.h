#pragma once
// Questions to the emulator (emulated_cuda.h) by tests over devices. In a program for a real device (real_device.cpp)
// it is not here: no wait is counted, and all but here() and waits() throw std::logic_error.

#include <functional>

struct CUstream_st;

namespace emulated_cuda {

/// Whether devices are emulated.
[[nodiscard]] bool here();
inline constexpr const char* kOnlyHere = "a real device neither counts waits nor can be steered";

/// Gives `work` to the stream, or records it where a graph is being made of that.
void start(CUstream_st* stream, std::function<void()> work);
/// Copies from one device to another so far.
[[nodiscard]] long copies_between_devices();
/// Calls of a thread that make it wait: for a stream, for an event that was not reached, or, as memory is given and
/// taken back, for a device.
struct Waits {
  long streams = 0, events = 0, allocations = 0, releases = 0, pinned_allocations = 0, pinned_releases = 0;
  bool operator==(const Waits&) const = default;
  Waits operator-(const Waits& earlier) const {
    return {.streams = streams - earlier.streams,
            .events = events - earlier.events,
            .allocations = allocations - earlier.allocations,
            .releases = releases - earlier.releases,
            .pinned_allocations = pinned_allocations - earlier.pinned_allocations,
            .pinned_releases = pinned_releases - earlier.pinned_releases};
  }
};
/// The calling thread's so far.
[[nodiscard]] Waits waits();
/// Bytes of devices' memory that are taken now, all devices together.
[[nodiscard]] long taken_bytes();
/// From now on no memory is given beyond so many bytes, all devices together.
void set_memory(long bytes);
/// Streams do nothing until somebody waits for them, from now on or no longer.
void set_lazy(bool on);

}  // namespace emulated_cuda
