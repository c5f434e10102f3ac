#pragma once
// Search for the coming iteration in which a verification fits (ADMIT), over rings of reserved link time and of memory
// in flight. Yao et al. 2026, arXiv:2605.17613, section 5.1 and Algorithm 1.

#include <cstdint>
#include <optional>
#include <vector>

namespace kvarena::cost_model {

/// Distribution of a reload's link time over the windows it spans; the paper leaves it open.
enum class LinkSpread {
  uniform,  // the same in each
  front,    // whole windows first, the remainder in the last
};

struct RingSettings {
  int64_t windows = 128;    // W, iterations that are looked ahead; at least 2
  double memory_bytes = 0;  // of the accelerator
  double weight_bytes = 0;  // M
  LinkSpread spread = LinkSpread::uniform;
};

/// A verification that seeks its iteration, or a load at a request's arrival.
struct ReloadRequest {
  double bytes = 0;              // bytes that come onto the accelerator
  double link_bandwidth = 0;     // bytes/s
  double iteration_seconds = 0;  // T_iter, as estimated now
  double resident_bytes = 0;     // KV_resident: every cache kept on the accelerator between iterations
  int64_t draft_length = 1;      // x, the iteration that is tried first; of no meaning for a load
};

/// A reserved reload or load: it runs in windows first .. verify, counted from the current iteration.
struct Placement {
  int64_t first = 0;
  int64_t verify = 0;  // of a load: its last window

  [[nodiscard]] int64_t span() const { return verify - first + 1; }
};

class ResourceRings {
 public:
  explicit ResourceRings(RingSettings settings);

  /// Algorithm 1: tries windows x, x - 1, x + 1, x - 2, ... clamped to [S, W - 1] and reserves the first whose span
  /// holds both rings. Nothing when none does, and nothing is then reserved: the request waits.
  [[nodiscard]] std::optional<Placement> admit(const ReloadRequest& request);
  /// A load at a request's arrival: reserves the earliest windows, from the current one on, whose link has room for it.
  /// Its bytes stay, so that resident_bytes counts them already. Nothing when there are no such windows.
  [[nodiscard]] std::optional<Placement> load(const ReloadRequest& request);

  /// Whether the horizon is long enough for a transfer, however free its windows are.
  [[nodiscard]] bool reaches(const ReloadRequest& request) const { return span_of(request).has_value(); }

  /// Ends the current iteration: drops window 0 and appends a free one.
  void advance();

  [[nodiscard]] int64_t windows() const { return settings_.windows; }
  [[nodiscard]] double link_seconds(int64_t window) const { return slot(window).link_seconds; }
  [[nodiscard]] double bytes_in_flight(int64_t window) const { return slot(window).bytes; }

 private:
  struct Window {
    double link_seconds = 0;
    double bytes = 0;
  };
  /// Windows that a transfer spans; nothing when it is longer than the horizon.
  [[nodiscard]] std::optional<int64_t> span_of(const ReloadRequest& request) const;
  /// Link time that window `index` of the span is charged.
  [[nodiscard]] double charge(const ReloadRequest& request, int64_t span, int64_t index) const;
  /// Reserves the placement if its windows have room for the transfer, and for `in_flight` bytes until it ends.
  [[nodiscard]] bool reserve(const ReloadRequest& request, const Placement& placement, double in_flight);
  [[nodiscard]] bool holds(const ReloadRequest& request, const Placement& placement, double in_flight) const;
  [[nodiscard]] const Window& slot(int64_t window) const { return ring_[(now_ + window) % settings_.windows]; }

  RingSettings settings_;
  std::vector<Window> ring_;
  int64_t now_ = 0;
};

}  // namespace kvarena::cost_model
