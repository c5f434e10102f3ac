#include "harness/cost_model/verification_schedule.h"

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena::cost_model {

ScheduleKind schedule_named(const std::string& name) {
  if (name == "lock_step") return ScheduleKind::lock_step;
  if (name == "sequential") return ScheduleKind::sequential;
  KVARENA_ASSERT(name == "staggered", name);
  return ScheduleKind::staggered;
}

VerificationSchedule::VerificationSchedule(ScheduleSettings settings) : settings_(settings), rings_(settings.rings) {
  KVARENA_ASSERT(settings.draft_length >= 1 && settings.link_bandwidth > 0, "a schedule drafts and reloads");
}

int64_t VerificationSchedule::add(double full_bytes, double compressed_bytes) {
  requests_.push_back({.full_bytes = full_bytes, .compressed_bytes = compressed_bytes});
  return static_cast<int64_t>(requests_.size()) - 1;
}

int64_t VerificationSchedule::running() const {
  return std::ranges::count_if(requests_, [](const Request& r) { return r.mode != Mode::left; });
}

double VerificationSchedule::resident_bytes() const {
  double bytes = 0;
  for (const Request& request : requests_) {
    if (request.mode != Mode::left) bytes += request.compressed_bytes;
  }
  return bytes;
}

void VerificationSchedule::admit(double iteration_seconds) {
  for (Request& request : requests_) {
    if (request.mode != Mode::waiting) continue;
    const auto placement = rings_.admit({.bytes = request.full_bytes,
                                         .link_bandwidth = settings_.link_bandwidth,
                                         .iteration_seconds = iteration_seconds,
                                         .resident_bytes = resident_bytes(),
                                         .draft_length = draft_length(request)});
    if (!placement) continue;
    request.mode = Mode::drafting;
    request.until_reload = placement->first;
    request.until_verify = placement->verify;
  }
}

void VerificationSchedule::admit_together() {
  const bool cycle_over =
      std::ranges::none_of(requests_, [](const Request& r) { return r.mode == Mode::drafting || r.mode == Mode::due; });
  if (!cycle_over) return;
  int64_t length = 0;
  for (const Request& request : requests_) {
    if (request.mode == Mode::waiting) length = std::max(length, draft_length(request));
  }
  for (Request& request : requests_) {
    if (request.mode != Mode::waiting) continue;
    request.mode = Mode::drafting;
    request.until_reload = request.until_verify = length;
  }
}

bool VerificationSchedule::hold_all_back(const ReloadLink& link) const {
  if (settings_.kind != ScheduleKind::lock_step) return false;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].mode == Mode::due && !link.arrives_in_time(static_cast<int64_t>(i))) return true;
  }
  return false;
}

IterationPlan VerificationSchedule::next(double iteration_seconds, ReloadLink& link) {
  if (settings_.kind == ScheduleKind::staggered) {
    admit(iteration_seconds);
  } else {
    admit_together();
  }
  for (size_t i = 0; i < requests_.size(); ++i) {
    Request& request = requests_[i];
    if (request.mode != Mode::drafting) continue;
    if (request.until_reload == 0) link.begin(static_cast<int64_t>(i));
    if (request.until_verify == 0) request.mode = Mode::due;
  }

  IterationPlan plan;
  const bool held = hold_all_back(link);
  for (size_t i = 0; i < requests_.size(); ++i) {
    const auto id = static_cast<int64_t>(i);
    if (requests_[i].mode == Mode::drafting) {
      plan.draft.push_back(id);
    } else if (requests_[i].mode == Mode::due && !held && link.arrives_in_time(id)) {
      plan.verify.push_back(id);
    } else if (requests_[i].mode == Mode::due) {
      ++late_verifies_;
    }
  }
  return plan;
}

void VerificationSchedule::verified(int64_t request, bool finished) {
  requests_[request].mode = finished ? Mode::left : Mode::waiting;
}

void VerificationSchedule::advance() {
  rings_.advance();
  for (Request& request : requests_) {
    --request.until_reload;
    --request.until_verify;
  }
}

}  // namespace kvarena::cost_model
