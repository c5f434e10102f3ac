#pragma once
// A verification schedule on the measured clock: real passes, real reloads over a link.
// Yao et al. 2026, arXiv:2605.17613, sections 4.2 and 5.

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "harness/cost_model/verification_schedule.h"
#include "harness/engine/serving/admission.h"
#include "harness/engine/serving/iteration_estimate.h"
#include "harness/engine/session/verify_session.h"

namespace kvarena {

struct ScheduledSettings {
  cost_model::ScheduleKind kind = cost_model::ScheduleKind::staggered;
  int64_t draft_length = 1;     // x
  Tier tier = Tier::host;       // that holds full caches
  double link_bytes_per_s = 0;  // of the link that they come over
  int64_t windows = 128;        // W
  bool pin = true;              // CompressedCopy::pin
  bool fall_back = true;        // CompressedCopy::fall_back
  int64_t weight_bytes = 0;     // of the model, which every pass reads
};

/// Whether the method verifies by a schedule (CompressedCopy::schedule).
[[nodiscard]] bool has_schedule(const Method& method);
/// Settings for such a method. The rate of a real link is measured now.
[[nodiscard]] ScheduledSettings scheduled_settings(const Method& method, Transformer& model,
                                                   const storage::HierarchyPtr& tiers);

/// Sessions with offloaded caches (SessionOptions::offload_tier), of one verifier. The caller runs the passes: next(),
/// a forward pass over what it returns, advance(). Full caches never take more of the device than resident ones leave,
/// whatever the schedule expects: a reload waits for its room, and a start before it. Staggered, full caches that find
/// room stay after their verification, and leave when others ask for it; those that stop drafting keep theirs. Where
/// full KV on the caches that have room gives more tokens a second than all have got so far, by the times of passes and
/// waits, everybody stops drafting and the others wait for room, until nobody is left.
class ScheduledDecoding final : private cost_model::ReloadLink {
 public:
  /// `memory`: room for caches, resident compressed ones, full ones on their way and in use, and those of others who
  /// are promised it too.
  ScheduledDecoding(const ScheduledSettings& settings, std::shared_ptr<serving::Admission> memory);

  /// Whether there is room for one more: resident caches beside one full one, in lock-step beside all of them.
  [[nodiscard]] bool fits(int64_t full_bytes, int64_t resident_bytes) const {
    return memory_->fits(promise(full_bytes, resident_bytes));
  }
  /// Whether one more fits() and may start now, which takes both of its caches at once. One that has to wait is asked
  /// about before each pass: until it may, its room is kept from reloads, and full caches that stay there leave.
  [[nodiscard]] bool may_start(int64_t full_bytes, int64_t resident_bytes);
  /// A session that may come to hold `resident_bytes` between verifications and whose full cache may grow to
  /// `full_bytes`; throws UserError unless it fits(). It must outlive its stay.
  void add(VerifySession& session, int64_t full_bytes, int64_t resident_bytes);
  /// A session leaves before its end.
  void drop(const VerifySession& session);

  /// Adds a load at a request's arrival, over the link of reloads, which it shares with them as the schedule says: it
  /// is to begin when loads() lists it. Returns its number.
  int64_t add_load(int64_t bytes);
  /// Loads that are to begin with the coming pass, after next().
  [[nodiscard]] const std::vector<int64_t>& loads() const { return beginning_; }
  /// The load has come, or never will.
  void loaded(int64_t load);

  /// The sessions of the coming pass; each feeds one drafted token or a verification. When all of them can only wait
  /// for a reload it waits for it, unless others have something to do, and returns none: that, too, is an iteration.
  /// Throws UserError when no verification can ever be placed.
  [[nodiscard]] std::vector<VerifySession*> next(bool others_run = false);
  /// The pass took so long and was consumed; sessions that are finished leave.
  void advance(double seconds);

  /// Bytes of the device that full caches may come to take: of sessions that have them there or on their way, and of
  /// the one that is to start.
  [[nodiscard]] int64_t full_bytes_claimed() const;
  [[nodiscard]] int64_t running() const { return schedule_.running(); }
  [[nodiscard]] int64_t late_verifies() const { return schedule_.late_verifies(); }
  /// The most sessions at a time whose full caches stayed, and all that stopped drafting.
  [[nodiscard]] int64_t peak_pinned() const { return peak_pinned_; }
  [[nodiscard]] int64_t fallen_back() const { return fallen_back_; }
  /// Sessions that verify in the present pass.
  [[nodiscard]] int64_t verifying() const { return static_cast<int64_t>(verifying_.size()); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Member {
    VerifySession* session = nullptr;
    int64_t full_bytes = 0;
    int64_t resident_bytes = 0;
    bool pinned = false;  // its full cache stays from its next verification on
    bool drafts = true;
    int64_t draft_passes = 0;  // since its last verification
    serving::Admission::Place place;
    Clock::time_point arrival = Clock::time_point::max();  // expected, of the reload begun last
  };

  /// Work of passes.
  struct Work {
    double seconds = 0;
    double bytes = 0;  // of weights and caches that they read
    int64_t drafts = 0, verifies = 0;
    Work& operator+=(const Work& more);
  };

  /// Bytes that a request's start takes.
  struct Start {
    int64_t full_bytes = 0;
    int64_t resident_bytes = 0;
  };

  [[nodiscard]] serving::Promise promise(int64_t full_bytes, int64_t resident_bytes) const;
  /// Decides whose full caches stay, also beside that of a request that is to start.
  void share_room();
  void release(int64_t request, Member& member);
  /// Takes in a round that was verified.
  void settle(int64_t request, Member& member);
  /// Whether the pinned sessions had better stop drafting, and the others not.
  [[nodiscard]] bool full_kv_is_better() const;
  /// Whether all of them had, by the times measured so far.
  [[nodiscard]] bool full_kv_alone_is_better() const;
  /// Bytes of what a session drafts on.
  [[nodiscard]] static double drafted_on(const Member& member);
  /// Bytes that full caches may take beside resident ones.
  [[nodiscard]] double room_for_full() const { return static_cast<double>(memory_->room() - resident_bytes()); }
  void stop_drafting(int64_t request, Member& member);
  void begin(int64_t request) override;
  [[nodiscard]] bool arrives_in_time(int64_t request) const override;
  /// Begins the reloads asked for, in order, as long as there is room.
  void reload();
  void wait_for_reload();
  /// The link is taken for so many more bytes; when they will have come.
  Clock::time_point take_link(int64_t bytes);
  /// Bytes promised to others than the sessions.
  [[nodiscard]] int64_t others_bytes() const;
  /// Bytes that resident caches may come to hold, others' too and those of the session that is to start.
  [[nodiscard]] int64_t resident_bytes() const;
  /// Whether the device has so many bytes beside both.
  [[nodiscard]] bool has_room(int64_t bytes) const;

  ScheduledSettings settings_;
  std::shared_ptr<serving::Admission> memory_;
  cost_model::VerificationSchedule schedule_;
  std::map<int64_t, Member> members_;  // by the schedule's id
  std::optional<Start> starting_;      // waits for its room
  std::deque<int64_t> wanted_;         // reloads that have no room yet
  std::deque<int64_t> coming_;         // reloads that were begun, in order
  std::vector<int64_t> verifying_;
  std::map<int64_t, int64_t> load_bytes_;  // of loads that have not come
  std::vector<int64_t> beginning_;         // loads, in the present iteration
  Clock::time_point link_free_;
  IterationEstimate iteration_;
  int64_t rounds_ = 0, draft_passes_ = 0, drafted_ = 0, accepted_ = 0;  // so far, where something was drafted
  Work pass_;                                                           // the present one
  Work all_, drafts_alone_;     // passes so far, and those among them that verified nothing
  double waited_seconds_ = 0;   // for reloads while nobody could go on
  bool full_kv_alone_ = false;  // nobody is to draft
  int64_t peak_pinned_ = 0;
  int64_t fallen_back_ = 0;
  int64_t idle_ = 0;  // iterations in which nobody was fed and nothing was coming
};

}  // namespace kvarena
