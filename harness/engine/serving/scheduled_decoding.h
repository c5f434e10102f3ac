#pragma once
// A verification schedule on the measured clock: real passes, real reloads over a link.
// Yao et al. 2026, arXiv:2605.17613, sections 4.2 and 5.

#include <chrono>
#include <deque>
#include <map>
#include <vector>

#include "harness/cost_model/verification_schedule.h"
#include "harness/engine/serving/admission.h"
#include "harness/engine/session/verify_session.h"

namespace kvarena {

struct ScheduledSettings {
  cost_model::ScheduleKind kind = cost_model::ScheduleKind::staggered;
  int64_t draft_length = 1;     // x
  int64_t device_bytes = 0;     // for caches: resident compressed ones, full ones on their way and in use
  double link_bytes_per_s = 0;  // of the link that full caches come over
  int64_t windows = 128;        // W
};

/// Whether the method verifies by a schedule (CompressedCopy::schedule).
[[nodiscard]] bool has_schedule(const Method& method);
/// Settings for the verifier of such a method, whose full caches come from host memory. The rate of a real link is
/// measured now.
[[nodiscard]] ScheduledSettings scheduled_settings(const Verifier& verifier, const storage::HierarchyPtr& tiers,
                                                   int64_t device_bytes);

/// Sessions with offloaded caches (SessionOptions::offload_tier), of one verifier. The caller runs the passes: next(),
/// a forward pass over what it returns, advance(). Full caches never take more of the device than resident ones leave,
/// whatever the schedule expects: a reload waits for its room.
class ScheduledDecoding final : private cost_model::ReloadLink {
 public:
  explicit ScheduledDecoding(const ScheduledSettings& settings);

  /// Whether there is room for one more: resident caches beside one full one, in lock-step beside all of them.
  [[nodiscard]] bool fits(int64_t full_bytes, int64_t resident_bytes) const {
    return admission_.fits(promise(full_bytes, resident_bytes));
  }
  /// A session that may come to hold `resident_bytes` between verifications and whose full cache may grow to
  /// `full_bytes`; throws UserError unless it fits(). It must outlive its stay.
  void add(VerifySession& session, int64_t full_bytes, int64_t resident_bytes);
  /// A session leaves before its end.
  void drop(const VerifySession& session);

  /// The sessions of the coming pass; each feeds one drafted token or a verification. When all of them can only wait
  /// for a reload it waits for it, unless others have something to do, and returns none: that, too, is an iteration.
  /// Throws UserError when no verification can ever be placed.
  [[nodiscard]] std::vector<VerifySession*> next(bool others_run = false);
  /// The pass took so long and was consumed; sessions that are finished leave.
  void advance(double seconds);

  [[nodiscard]] int64_t running() const { return schedule_.running(); }
  [[nodiscard]] int64_t late_verifies() const { return schedule_.late_verifies(); }
  /// Sessions that verify in the present pass.
  [[nodiscard]] int64_t verifying() const { return static_cast<int64_t>(verifying_.size()); }
  /// Bytes of the device that full caches take now.
  [[nodiscard]] int64_t full_bytes_held() const;
  /// Bytes that resident caches may come to hold.
  [[nodiscard]] int64_t resident_bytes() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Member {
    VerifySession* session = nullptr;
    int64_t full_bytes = 0;
    int64_t resident_bytes = 0;
    serving::Admission::Place place;
    Clock::time_point arrival = Clock::time_point::max();  // expected, of the reload begun last
  };

  [[nodiscard]] serving::Promise promise(int64_t full_bytes, int64_t resident_bytes) const;
  void begin(int64_t request) override;
  [[nodiscard]] bool arrives_in_time(int64_t request) const override;
  /// Begins the reloads asked for, in order, as long as there is room.
  void reload();
  void wait_for_reload();

  ScheduledSettings settings_;
  serving::Admission admission_;
  cost_model::VerificationSchedule schedule_;
  std::map<int64_t, Member> members_;  // by the schedule's id
  std::deque<int64_t> wanted_;         // reloads that have no room yet
  std::deque<int64_t> coming_;         // reloads that were begun, in order
  std::vector<int64_t> verifying_;
  Clock::time_point link_free_;
  double iteration_seconds_;  // expected
  bool measured_ = false;     // by a pass of this run
  bool fed_ = false;          // somebody, in the present iteration
  int64_t idle_ = 0;          // iterations in which nobody was fed and nothing was coming
};

}  // namespace kvarena
