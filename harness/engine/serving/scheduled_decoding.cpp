#include "harness/engine/serving/scheduled_decoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/cost_model/staggered_decoding.h"

namespace kvarena {
namespace {

/// Drafted tokens that say what acceptance is.
constexpr int64_t kEvidence = 64;

/// How many of these caches, first come first, fit into `room`.
int64_t count_that_fit(double room, std::span<const double> full_bytes) {
  return std::ranges::count_if(full_bytes, [&](double bytes) { return (room -= bytes) >= 0; });
}

}  // namespace

ScheduledDecoding::Work& ScheduledDecoding::Work::operator+=(const Work& more) {
  seconds += more.seconds;
  bytes += more.bytes;
  drafts += more.drafts;
  verifies += more.verifies;
  return *this;
}

bool has_schedule(const Method& method) {
  if (method.verifier() == nullptr) return false;
  const Drafter drafter = method.verifier()->drafter();
  const auto* copy = std::get_if<CompressedCopy>(&drafter);
  return copy != nullptr && !copy->schedule.empty();
}

ScheduledSettings scheduled_settings(const Method& method, Transformer& model, const storage::HierarchyPtr& tiers) {
  const auto copy = std::get<CompressedCopy>(method.verifier()->drafter());
  const cost_model::ScheduleKind kind = cost_model::schedule_named(copy.schedule);
  return {.kind = kind,
          .draft_length = method.verifier()->draft_length(),
          .tier = copy.tier,
          .link_bytes_per_s = reload_rate(model, tiers, copy.tier),
          .pin = copy.pin && kind == cost_model::ScheduleKind::staggered,
          .fall_back = copy.fall_back,
          .weight_bytes = model.weight_bytes()};
}

ScheduledDecoding::ScheduledDecoding(const ScheduledSettings& settings, std::shared_ptr<serving::Admission> memory)
    : settings_(settings),
      memory_(std::move(memory)),
      schedule_({.kind = settings.kind,
                 .rings = {.windows = settings.windows, .memory_bytes = static_cast<double>(memory_->room())},
                 .link_bandwidth = settings.link_bytes_per_s,
                 .draft_length = settings.draft_length}),
      link_free_(Clock::now()) {}

/// In lock-step all full caches are there at a time.
serving::Promise ScheduledDecoding::promise(int64_t full_bytes, int64_t resident_bytes) const {
  if (settings_.kind == cost_model::ScheduleKind::lock_step) return {.own = full_bytes + resident_bytes};
  return {.own = resident_bytes, .in_turn = full_bytes};
}

bool ScheduledDecoding::may_start(int64_t full_bytes, int64_t resident_bytes) {
  starting_.reset();
  if (!fits(full_bytes, resident_bytes)) return false;
  starting_ = {.full_bytes = full_bytes, .resident_bytes = resident_bytes};
  share_room();
  if (!has_room(0)) return false;
  starting_.reset();
  return true;
}

void ScheduledDecoding::add(VerifySession& session, int64_t full_bytes, int64_t resident_bytes) {
  KVARENA_ASSERT(session.offloaded() != nullptr, "only sessions with offloaded caches are scheduled");
  if (!fits(full_bytes, resident_bytes)) {
    fail({.place = "device memory for caches",
          .found = fmt::format("{} bytes of a full cache and {} of what is drafted on, beside {} of other requests",
                               full_bytes, resident_bytes, this->resident_bytes()),
          .expected = fmt::format("at most {} bytes together", memory_->room()),
          .action = "run fewer requests at a time, compress more, or give the device more room"});
  }
  const int64_t id = schedule_.add(static_cast<double>(full_bytes), static_cast<double>(resident_bytes));
  schedule_.limit(id, session.most_drafts());
  members_[id] = {.session = &session,
                  .full_bytes = full_bytes,
                  .resident_bytes = resident_bytes,
                  .place = memory_->admit(promise(full_bytes, resident_bytes))};
  share_room();
}

void ScheduledDecoding::drop(const VerifySession& session) {
  const auto found = std::ranges::find_if(members_, [&](const auto& m) { return m.second.session == &session; });
  if (found == members_.end()) return;
  schedule_.verified(found->first, /*finished=*/true);
  std::erase(wanted_, found->first);
  std::erase(coming_, found->first);
  std::erase(verifying_, found->first);
  members_.erase(found);
  if (members_.empty()) full_kv_alone_ = false;
  share_room();
}

void ScheduledDecoding::share_room() {
  if (!settings_.pin) return;
  std::vector<std::pair<const int64_t, Member>*> claims;  // those that stopped drafting keep theirs
  for (auto& member : members_) claims.push_back(&member);
  std::ranges::stable_partition(claims, [](const auto* member) { return !member->second.drafts; });
  std::vector<double> full;
  for (const auto* member : claims) full.push_back(static_cast<double>(member->second.full_bytes));
  if (starting_) full.push_back(static_cast<double>(starting_->full_bytes));
  const double room = room_for_full();
  const int64_t staying = full_kv_alone_ ? count_that_fit(room, full) : cost_model::full_caches_that_stay(room, full);
  for (int64_t i = 0; i < std::ssize(claims); ++i) {
    auto& [id, member] = *claims[i];
    schedule_.hold(id, full_kv_alone_ && i >= staying);
    if (i < staying && !member.pinned) {
      member.pinned = true;
      member.session->offloaded()->keep();
    } else if (i >= staying && member.pinned && member.drafts) {
      release(id, member);
    }
  }
}

void ScheduledDecoding::release(int64_t request, Member& member) {
  member.pinned = false;
  schedule_.unpin(request);
  const std::string failure = failure_of([&] { member.session->release_full(); });
  if (!failure.empty()) member.session->failed(failure);
}

int64_t ScheduledDecoding::others_bytes() const {
  int64_t bytes = memory_->promised();
  for (const auto& [id, member] : members_) bytes -= member.place->own;
  return bytes;
}

int64_t ScheduledDecoding::resident_bytes() const {
  int64_t bytes = others_bytes() + (starting_ ? starting_->resident_bytes : 0);
  for (const auto& [id, member] : members_) bytes += member.resident_bytes;
  return bytes;
}

int64_t ScheduledDecoding::full_bytes_claimed() const {
  int64_t bytes = starting_ ? starting_->full_bytes : 0;
  for (const auto& [id, member] : members_) {
    const OffloadedCache& cache = *member.session->offloaded();
    bytes += cache.is_coming() ? member.full_bytes : cache.device_bytes();
  }
  return bytes;
}

bool ScheduledDecoding::has_room(int64_t bytes) const {
  return full_bytes_claimed() + resident_bytes() + bytes <= memory_->room();
}

void ScheduledDecoding::begin(int64_t request) {
  wanted_.push_back(request);
  reload();
}

void ScheduledDecoding::reload() {
  while (!wanted_.empty()) {
    const int64_t id = wanted_.front();
    Member& member = members_.at(id);
    if (!has_room(member.full_bytes)) return;
    wanted_.pop_front();
    coming_.push_back(id);
    member.session->offloaded()->begin_reload();
    member.arrival = take_link(member.session->offloaded()->offloaded_bytes());
  }
}

ScheduledDecoding::Clock::time_point ScheduledDecoding::take_link(int64_t bytes) {
  const std::chrono::duration<double> takes(static_cast<double>(bytes) / settings_.link_bytes_per_s);
  link_free_ = std::max(link_free_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(takes);
  return link_free_;
}

/// Its caches lie in the room of whoever loads them, not in this one.
int64_t ScheduledDecoding::add_load(int64_t bytes) {
  const int64_t load = schedule_.add_load(static_cast<double>(bytes), /*resident_bytes=*/0);
  load_bytes_[load] = bytes;
  return load;
}

void ScheduledDecoding::loaded(int64_t load) {
  schedule_.loaded(load);
  load_bytes_.erase(load);
}

/// A pass waits for each layer when it gets there, the last one at its end.
bool ScheduledDecoding::arrives_in_time(int64_t request) const {
  if (std::ranges::find(wanted_, request) != wanted_.end()) return false;
  const Member& member = members_.at(request);
  const std::chrono::duration<double> left = member.arrival - Clock::now();
  return left.count() <= iteration_.seconds() || member.session->offloaded()->arrived();
}

std::vector<VerifySession*> ScheduledDecoding::next(bool others_run) {
  share_room();
  reload();
  schedule_.set_others(static_cast<double>(others_bytes()));
  const cost_model::IterationPlan plan = schedule_.next(iteration_.seconds(), *this);
  beginning_ = plan.loads;
  for (const int64_t load : beginning_) (void)take_link(load_bytes_.at(load));
  std::vector<VerifySession*> fed;
  pass_ = {.bytes = static_cast<double>(settings_.weight_bytes), .verifies = std::ssize(plan.verify)};
  for (const int64_t id : plan.draft) {
    Member& member = members_.at(id);
    if (!member.session->can_draft()) continue;
    fed.push_back(member.session);
    pass_.bytes += drafted_on(member);
    ++pass_.drafts;
    ++member.draft_passes;
  }
  for (const int64_t id : plan.verify) {
    const Member& member = members_.at(id);
    member.session->end_drafting();
    fed.push_back(member.session);
    pass_.bytes += static_cast<double>(member.full_bytes);
  }
  verifying_ = plan.verify;
  if (fed.empty() && !others_run && !members_.empty()) wait_for_reload();
  return fed;
}

void ScheduledDecoding::wait_for_reload() {
  for (const int64_t id : coming_) {
    OffloadedCache& cache = *members_.at(id).session->offloaded();
    if (cache.arrived()) continue;
    idle_ = 0;
    const Clock::time_point begin = Clock::now();
    try {
      cache.wait();
    } catch (const UserError&) {  // its own pass says so
    }
    waited_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
    return;
  }
  if (++idle_ <= 2 * settings_.windows) return;  // placements that lie ahead come nearer by themselves
  fail({.place = "verification schedule",
        .found = fmt::format("no place for a reload in {} iterations", idle_ - 1),
        .expected = fmt::format("room for it in {} bytes of device memory, {} of them taken", memory_->room(),
                                resident_bytes() + full_bytes_claimed()),
        .action = "run fewer requests at a time, or give the device more room"});
}

void ScheduledDecoding::advance(double seconds) {
  if (pass_.drafts + pass_.verifies > 0) {
    iteration_.note(seconds);
    pass_.seconds = seconds;
    all_ += pass_;
    if (pass_.verifies == 0) drafts_alone_ += pass_;
    idle_ = 0;
  }
  std::vector<const VerifySession*> finished;  // also by a failure while they drafted
  for (const auto& [id, member] : members_) {
    if (member.session->finished()) finished.push_back(member.session);
  }
  for (const VerifySession* session : finished) drop(*session);
  for (const int64_t id : verifying_) settle(id, members_.at(id));
  verifying_.clear();
  schedule_.advance();
  starting_.reset();
}

void ScheduledDecoding::settle(int64_t request, Member& member) {
  const VerifyRound& round = member.session->rounds.back();
  if (round.drafted > 0) ++rounds_;
  draft_passes_ += std::exchange(member.draft_passes, 0);
  drafted_ += round.drafted;
  accepted_ += round.accepted;
  std::erase(coming_, request);
  schedule_.verified(request, /*finished=*/false);
  const bool stays = member.session->offloaded()->stays();  // unless it was pinned after this verification
  if (stays) schedule_.pin(request);
  const int64_t pinned =
      std::ranges::count_if(members_, [](const auto& each) { return each.second.session->offloaded()->stays(); });
  peak_pinned_ = std::max(peak_pinned_, pinned);
  if (!full_kv_alone_ && full_kv_alone_is_better()) {
    full_kv_alone_ = true;
    share_room();
  }
  if (stays && member.drafts && (full_kv_alone_ || full_kv_is_better())) stop_drafting(request, member);
  schedule_.limit(request, member.session->most_drafts());
}

double ScheduledDecoding::drafted_on(const Member& member) {
  return static_cast<double>(member.session->held_bytes() - member.session->offloaded()->device_bytes());
}

/// A byte takes at most as long in a pass of full KV as in one that drafts: that has no fewer rows to compute.
bool ScheduledDecoding::full_kv_alone_is_better() const {
  if (!settings_.pin || !settings_.fall_back || drafted_ < kEvidence) return false;
  std::vector<double> full;
  for (const auto& [id, member] : members_) full.push_back(static_cast<double>(member.full_bytes));
  const int64_t together = count_that_fit(room_for_full(), full);
  const Work& alike = drafts_alone_.bytes > 0 ? drafts_alone_ : all_;
  const double read =
      std::accumulate(full.begin(), full.begin() + together, static_cast<double>(settings_.weight_bytes));
  const double per_pass = static_cast<double>(accepted_) / static_cast<double>(draft_passes_);  // that drafts
  const double tokens = per_pass * static_cast<double>(all_.drafts) + static_cast<double>(all_.verifies);
  return static_cast<double>(together) / (read * alike.seconds / alike.bytes) >
         tokens / (all_.seconds + waited_seconds_);
}

bool ScheduledDecoding::full_kv_is_better() const {
  if (!settings_.fall_back || drafted_ < kEvidence) return false;
  cost_model::DecodingPlan plan{.draft_length = std::max<int64_t>(1, drafted_ / rounds_),
                                .acceptance = static_cast<double>(accepted_) / static_cast<double>(drafted_)};
  int64_t drafting = 0;
  double full = 0, compressed = 0;  // bytes of those that draft
  for (const auto& [id, member] : members_) {
    ++(member.pinned ? plan.resident : plan.offloaded);
    if (!member.drafts) continue;
    const OffloadedCache& cache = *member.session->offloaded();
    ++drafting;
    full += static_cast<double>(cache.offloaded_bytes());
    compressed += drafted_on(member);
  }
  plan.kept = compressed / full;
  return cost_model::residents_should_decode({.weight_bytes = static_cast<double>(settings_.weight_bytes),
                                              .cache_bytes = full / static_cast<double>(drafting)},
                                             plan);
}

void ScheduledDecoding::stop_drafting(int64_t request, Member& member) {
  ++fallen_back_;
  member.drafts = false;
  member.session->stop_drafting();
  schedule_.stop_drafting(request);
  member.resident_bytes = 0;
  member.place.reset();
  member.place = memory_->admit({.own = member.full_bytes});
}

}  // namespace kvarena
