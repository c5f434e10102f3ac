#include "harness/engine/serving/scheduled_decoding.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {
namespace {

/// Until a pass was measured. Verifications placed by it may come late once.
constexpr double kFirstGuessSeconds = 0.05;
/// Weight of the newest pass in what is expected of the next.
constexpr double kNewest = 0.25;

/// "" for a verifier whose full caches stay on the device.
std::string schedule_of(const Verifier& verifier) {
  const Drafter drafter = verifier.drafter();
  const auto* copy = std::get_if<CompressedCopy>(&drafter);
  return copy == nullptr ? "" : copy->schedule;
}

}  // namespace

bool has_schedule(const Method& method) {
  return method.verifier() != nullptr && !schedule_of(*method.verifier()).empty();
}

ScheduledSettings scheduled_settings(const Verifier& verifier, const storage::HierarchyPtr& tiers,
                                     int64_t device_bytes) {
  return {.kind = cost_model::schedule_named(schedule_of(verifier)),
          .draft_length = verifier.draft_length(),
          .device_bytes = device_bytes,
          .link_bytes_per_s = storage::load_rate(tiers, Tier::host)};
}

ScheduledDecoding::ScheduledDecoding(const ScheduledSettings& settings)
    : settings_(settings),
      admission_(settings.device_bytes),
      schedule_({.kind = settings.kind,
                 .rings = {.windows = settings.windows, .memory_bytes = static_cast<double>(settings.device_bytes)},
                 .link_bandwidth = settings.link_bytes_per_s,
                 .draft_length = settings.draft_length}),
      link_free_(Clock::now()),
      iteration_seconds_(kFirstGuessSeconds) {}

/// In lock-step all full caches are there at a time.
serving::Promise ScheduledDecoding::promise(int64_t full_bytes, int64_t resident_bytes) const {
  if (settings_.kind == cost_model::ScheduleKind::lock_step) return {.own = full_bytes + resident_bytes};
  return {.own = resident_bytes, .in_turn = full_bytes};
}

void ScheduledDecoding::add(VerifySession& session, int64_t full_bytes, int64_t resident_bytes) {
  KVARENA_ASSERT(session.offloaded() != nullptr, "only sessions with offloaded caches are scheduled");
  if (!fits(full_bytes, resident_bytes)) {
    fail({.place = "device memory for caches",
          .found = fmt::format("{} bytes of a full cache and {} of what is drafted on, beside {} of other requests",
                               full_bytes, resident_bytes, this->resident_bytes()),
          .expected = fmt::format("at most {} bytes together", settings_.device_bytes),
          .action = "run fewer requests at a time, compress more, or give the device more room"});
  }
  const int64_t id = schedule_.add(static_cast<double>(full_bytes), static_cast<double>(resident_bytes));
  schedule_.limit(id, session.most_drafts());
  members_[id] = {.session = &session,
                  .full_bytes = full_bytes,
                  .resident_bytes = resident_bytes,
                  .place = admission_.admit(promise(full_bytes, resident_bytes))};
}

void ScheduledDecoding::drop(const VerifySession& session) {
  const auto found = std::ranges::find_if(members_, [&](const auto& m) { return m.second.session == &session; });
  if (found == members_.end()) return;
  schedule_.verified(found->first, /*finished=*/true);
  std::erase(wanted_, found->first);
  std::erase(coming_, found->first);
  std::erase(verifying_, found->first);
  members_.erase(found);
}

int64_t ScheduledDecoding::full_bytes_held() const {
  int64_t bytes = 0;
  for (const auto& [id, member] : members_) bytes += member.session->offloaded()->device_bytes();
  return bytes;
}

int64_t ScheduledDecoding::resident_bytes() const {
  int64_t bytes = 0;
  for (const auto& [id, member] : members_) bytes += member.resident_bytes;
  return bytes;
}

void ScheduledDecoding::begin(int64_t request) {
  wanted_.push_back(request);
  reload();
}

void ScheduledDecoding::reload() {
  while (!wanted_.empty()) {
    const int64_t id = wanted_.front();
    Member& member = members_.at(id);
    if (full_bytes_held() + resident_bytes() + member.full_bytes > settings_.device_bytes) return;
    wanted_.pop_front();
    coming_.push_back(id);
    member.session->offloaded()->begin_reload();
    const std::chrono::duration<double> takes(static_cast<double>(member.session->offloaded()->offloaded_bytes()) /
                                              settings_.link_bytes_per_s);
    link_free_ = std::max(link_free_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(takes);
    member.arrival = link_free_;
  }
}

/// A pass waits for each layer when it gets there, the last one at its end.
bool ScheduledDecoding::arrives_in_time(int64_t request) const {
  if (std::ranges::find(wanted_, request) != wanted_.end()) return false;
  const Member& member = members_.at(request);
  const std::chrono::duration<double> left = member.arrival - Clock::now();
  return left.count() <= iteration_seconds_ || member.session->offloaded()->arrived();
}

std::vector<VerifySession*> ScheduledDecoding::next(bool others_run) {
  reload();
  const cost_model::IterationPlan plan = schedule_.next(iteration_seconds_, *this);
  std::vector<VerifySession*> fed;
  for (const int64_t id : plan.draft) {
    VerifySession* session = members_.at(id).session;
    if (session->can_draft()) fed.push_back(session);
  }
  for (const int64_t id : plan.verify) {
    VerifySession* session = members_.at(id).session;
    session->end_drafting();
    fed.push_back(session);
  }
  verifying_ = plan.verify;
  fed_ = !fed.empty();
  if (!fed_ && !others_run && !members_.empty()) wait_for_reload();
  return fed;
}

void ScheduledDecoding::wait_for_reload() {
  for (const int64_t id : coming_) {
    OffloadedCache& cache = *members_.at(id).session->offloaded();
    if (cache.arrived()) continue;
    idle_ = 0;
    try {
      cache.wait();
    } catch (const UserError&) {  // its own pass says so
    }
    return;
  }
  if (++idle_ <= 2 * settings_.windows) return;  // placements that lie ahead come nearer by themselves
  fail({.place = "verification schedule",
        .found = fmt::format("no place for a reload, iterations of {:.3g} s", iteration_seconds_),
        .expected = fmt::format("reloads of at most {} iterations", settings_.windows - 1),
        .action = "take a faster link or fewer tokens of context"});
}

void ScheduledDecoding::advance(double seconds) {
  if (fed_) {
    iteration_seconds_ = measured_ ? (1 - kNewest) * iteration_seconds_ + kNewest * seconds : seconds;
    measured_ = true;
    idle_ = 0;
  }
  std::vector<const VerifySession*> finished;  // also by a failure while they drafted
  for (const auto& [id, member] : members_) {
    if (member.session->finished()) finished.push_back(member.session);
  }
  for (const VerifySession* session : finished) drop(*session);
  for (const int64_t id : verifying_) {
    schedule_.limit(id, members_.at(id).session->most_drafts());
    schedule_.verified(id, /*finished=*/false);
    std::erase(coming_, id);
  }
  verifying_.clear();
  schedule_.advance();
}

}  // namespace kvarena
