#pragma once
// Schedule of which requests draft, reload and verify in each iteration. The schedule decides; the modelled clock
// (modelled_run.h) or the engine (harness/engine/serving/scheduled_decoding.h) executes, calling the same functions in
// the same order.
// Yao et al. 2026, arXiv:2605.17613, sections 4.2 and 5.2.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "harness/cost_model/resource_rings.h"

namespace kvarena::cost_model {

enum class ScheduleKind {
  staggered,   // verifications placed one by one where link and memory have room (ADMIT)
  lock_step,   // all requests draft, then all reload, then all verify in one iteration
  sequential,  // all requests draft, then each verifies as soon as its own reload has come
};

/// "staggered", "lock_step" or "sequential".
[[nodiscard]] ScheduleKind schedule_named(const std::string& name);

/// How many full caches stay on the device in `room` that compressed ones leave, first come first (B_g of Appendix
/// B.1): beside them the two largest others have room, one that is verified and one on its way.
[[nodiscard]] int64_t full_caches_that_stay(double room, std::span<const double> full_bytes);

struct ScheduleSettings {
  ScheduleKind kind = ScheduleKind::staggered;
  RingSettings rings;
  double link_bandwidth = 0;  // bytes/s
  int64_t draft_length = 1;   // x
};

/// The link that full caches come over, one at a time and in order. On the modelled clock it computes, on the measured
/// one it copies.
class ReloadLink {
 public:
  virtual ~ReloadLink() = default;
  /// Queues the reload of a request's full cache.
  virtual void begin(int64_t request) = 0;
  /// Whether the reload begun last for the request will be there before the coming iteration needs its last layer.
  [[nodiscard]] virtual bool arrives_in_time(int64_t request) const = 0;
};

/// Work of one iteration. Requests in neither list wait.
struct IterationPlan {
  std::vector<int64_t> draft;   // draft one token each
  std::vector<int64_t> verify;  // verify what they have drafted
  std::vector<int64_t> loads;   // loads that begin now, behind the reloads that do
};

/// Record of an iteration, on either clock.
struct ScheduledIteration {
  double seconds = 0;
  double memory_bytes = 0;  // of the device, at its start
  int64_t drafting = 0;
  int64_t verifying = 0;
};

class VerificationSchedule {
 public:
  explicit VerificationSchedule(ScheduleSettings settings);

  /// Adds a request with its caches; returns its id, counted from 0.
  int64_t add(double full_bytes, double compressed_bytes);

  /// Caches of others take so many bytes of the device beside those of requests and loads.
  void set_others(double bytes) { others_bytes_ = bytes; }

  /// Plans the next iteration, expected to take `iteration_seconds`, and begins the reloads that are to run in it. A
  /// due verification whose reload does not arrive in time is late and stalls its request alone (staggered, sequential)
  /// or all of them (lock_step).
  [[nodiscard]] IterationPlan next(double iteration_seconds, ReloadLink& link);

  /// A load at a request's arrival, over the link of reloads: of `bytes`, of which so many stay until loaded(), when
  /// the request itself may be added. Returns its id, counted from 0. Staggered, it begins where the link has room
  /// beside the reloads that are placed, which are not late for it, and those to come keep off it; else, or where the
  /// horizon is too short, at once.
  int64_t add_load(double bytes, double resident_bytes);
  /// Records that a load has come, or never will.
  void loaded(int64_t load) { loads_.erase(load); }

  /// Lets `request` draft at most so many tokens in its coming rounds: its verifications are placed as if draft_length
  /// were no more, so that it does not idle until then.
  void limit(int64_t request, int64_t drafts) { requests_[request].most_drafts = drafts; }
  /// Staggered: the full cache of `request` is on the device and stays, so that its verifications need no reload, until
  /// unpin(), which places a round under way anew.
  void pin(int64_t request);
  void unpin(int64_t request);
  /// Staggered: `request` begins no further round while it is held.
  void hold(int64_t request, bool held) { requests_[request].held = held; }
  /// `request`, which is pinned, drafts no more and has no compressed cache: it decodes on its full one.
  void stop_drafting(int64_t request);
  /// Records that `request` was verified in the planned iteration; `finished` ones leave.
  void verified(int64_t request, bool finished);
  /// Ends the planned iteration.
  void advance();

  /// Requests that have not left.
  [[nodiscard]] int64_t running() const;
  /// Due verifications that had to wait for their reload, counted once an iteration.
  [[nodiscard]] int64_t late_verifies() const { return late_verifies_; }

 private:
  enum class Mode { waiting, drafting, due, left };
  struct Request {
    double full_bytes = 0;
    double compressed_bytes = 0;
    Mode mode = Mode::waiting;
    bool pinned = false;
    bool held = false;
    int64_t most_drafts = std::numeric_limits<int64_t>::max();
    int64_t until_reload = 0;  // iterations, staggered
    int64_t until_verify = 0;
  };
  struct Load {
    double bytes = 0;
    double resident_bytes = 0;
    bool placed = false;
    int64_t until_begin = 0;  // iterations
  };
  [[nodiscard]] double resident_bytes() const;
  [[nodiscard]] int64_t draft_length(const Request& request) const {
    return std::min(settings_.draft_length, request.most_drafts);
  }
  void place_loads(double iteration_seconds);
  /// Seconds of a window at which the horizon just reaches a reload. Over a link too slow for the iterations at hand,
  /// where Algorithm 1 has no placement, its request is placed as if they took so long, and waits for it alone.
  [[nodiscard]] double shortest_window(const Request& request) const;
  void admit(double iteration_seconds);
  void admit_together();
  [[nodiscard]] bool hold_all_back(const ReloadLink& link) const;

  ScheduleSettings settings_;
  ResourceRings rings_;
  std::vector<Request> requests_;
  double others_bytes_ = 0;
  std::map<int64_t, Load> loads_;  // by id, that have not come
  int64_t next_load_ = 0;
  int64_t late_verifies_ = 0;
};

}  // namespace kvarena::cost_model
