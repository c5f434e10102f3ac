#include "harness/cost_model/verification_schedule.h"

#include <algorithm>
#include <utility>

#include "harness/core/error.h"

namespace kvarena::cost_model {
namespace {

/// Iterations until a reload of a cache that is there: one that lies in the past never begins.
constexpr int64_t kNever = -1;

}  // namespace

ScheduleKind schedule_named(const std::string& name) {
  if (name == "lock_step") return ScheduleKind::lock_step;
  if (name == "sequential") return ScheduleKind::sequential;
  KVARENA_ASSERT(name == "staggered", name);
  return ScheduleKind::staggered;
}

int64_t full_caches_that_stay(double room, std::span<const double> full_bytes) {
  double staying = 0;
  int64_t count = 0;
  for (; count < std::ssize(full_bytes); ++count) {
    staying += full_bytes[count];
    double first = 0, second = 0;  // the largest of the others
    for (const double other : full_bytes.subspan(count + 1)) {
      second = std::max(second, std::min(first, other));
      first = std::max(first, other);
    }
    if (staying + first + second > room) break;
  }
  return count;
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
  double bytes = others_bytes_;
  for (const Request& request : requests_) {
    if (request.mode == Mode::left) continue;
    bytes += request.compressed_bytes + (request.pinned ? request.full_bytes : 0);
  }
  for (const auto& [id, load] : loads_) bytes += load.resident_bytes;
  return bytes;
}

int64_t VerificationSchedule::add_load(double bytes, double resident_bytes) {
  const bool staggered = settings_.kind == ScheduleKind::staggered;
  loads_[next_load_] = {.bytes = bytes, .resident_bytes = resident_bytes, .placed = !staggered};
  return next_load_++;
}

void VerificationSchedule::place_loads(double iteration_seconds) {
  for (auto& [id, load] : loads_) {
    if (load.placed) continue;
    const ReloadRequest wanted{.bytes = load.bytes,
                               .link_bandwidth = settings_.link_bandwidth,
                               .iteration_seconds = iteration_seconds,
                               .resident_bytes = resident_bytes()};
    load.placed = !rings_.reaches(wanted);  // it begins now
    if (load.placed) continue;
    const auto placement = rings_.load(wanted);
    if (!placement) continue;
    load.placed = true;
    load.until_begin = placement->first;
  }
}

double VerificationSchedule::shortest_window(const Request& request) const {
  constexpr double kRounding = 1 + 1e-12;  // of the same quotient in the rings
  return kRounding * request.full_bytes / (settings_.link_bandwidth * static_cast<double>(settings_.rings.windows - 1));
}

void VerificationSchedule::admit(double iteration_seconds) {
  for (Request& request : requests_) {
    if (request.mode != Mode::waiting || request.held) continue;
    if (request.pinned) {
      request.mode = Mode::drafting;
      request.until_reload = kNever;
      request.until_verify = draft_length(request);
      continue;
    }
    const auto placement = rings_.admit({.bytes = request.full_bytes,
                                         .link_bandwidth = settings_.link_bandwidth,
                                         .iteration_seconds = std::max(iteration_seconds, shortest_window(request)),
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
    place_loads(iteration_seconds);
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
  for (const auto& [id, load] : loads_) {
    if (load.placed && load.until_begin == 0) plan.loads.push_back(id);
  }
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

void VerificationSchedule::pin(int64_t request) {
  KVARENA_ASSERT(settings_.kind == ScheduleKind::staggered, "other schedules load every full cache");
  requests_[request].pinned = true;
}

void VerificationSchedule::unpin(int64_t request) {
  Request& unpinned = requests_[request];
  if (std::exchange(unpinned.pinned, false) && unpinned.mode != Mode::left) unpinned.mode = Mode::waiting;
}

void VerificationSchedule::stop_drafting(int64_t request) {
  KVARENA_ASSERT(requests_[request].pinned, "full KV is on the device");
  requests_[request].compressed_bytes = 0;
  limit(request, 0);
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
  for (auto& [id, load] : loads_) {
    if (load.placed) --load.until_begin;
  }
}

}  // namespace kvarena::cost_model
