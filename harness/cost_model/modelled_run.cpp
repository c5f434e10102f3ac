#include "harness/cost_model/modelled_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "harness/core/error.h"
#include "harness/core/random.h"

namespace kvarena::cost_model {
namespace {

/// A link that transfers one cache after the other at a fixed rate.
class ModelledLink final : public ReloadLink {
 public:
  ModelledLink(double bandwidth, double full_bytes, int64_t requests)
      : bandwidth_(bandwidth), full_bytes_(full_bytes), arrival_(requests, 0.0) {}

  void begin(int64_t request) override {
    arrival_[request] = transfer(full_bytes_);
    holding.push_back(request);
  }
  void begin_load(int64_t load, double bytes) { loads_[load] = transfer(bytes); }
  /// Takes the loads that have come.
  [[nodiscard]] std::vector<int64_t> loads_that_came() {
    std::vector<int64_t> came;
    for (const auto& [load, arrival] : loads_) {
      if (arrival <= now) came.push_back(load);
    }
    for (const int64_t load : came) loads_.erase(load);
    return came;
  }
  [[nodiscard]] bool arrives_in_time(int64_t request) const override {
    return arrival_[request] <= now + iteration_seconds;
  }
  /// Seconds until the next cache comes; an iteration's where none is on its way.
  [[nodiscard]] double wait_seconds() const {
    double first = kNever;
    for (const int64_t request : holding) {
      if (arrival_[request] > now) first = std::min(first, arrival_[request]);
    }
    for (const auto& [load, arrival] : loads_) first = std::min(first, arrival);
    return first == kNever ? iteration_seconds : first - now;
  }

  double now = 0;
  double iteration_seconds = 0;  // duration of a draft iteration: the limit of a reload
  double busy_seconds = 0;
  std::vector<int64_t> holding;  // requests whose full cache is on its way or there

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  double transfer(double bytes) {
    const double seconds = bytes / bandwidth_;
    free_at_ = std::max(free_at_, now) + seconds;
    busy_seconds += seconds;
    return free_at_;
  }

  double bandwidth_, full_bytes_;
  double free_at_ = 0;
  std::vector<double> arrival_;      // by request, of the reload begun last
  std::map<int64_t, double> loads_;  // arrivals, of loads on their way
};

/// State of a run.
class Simulation {
 public:
  Simulation(const ModelledSettings& settings, const AcceptanceCurve& acceptance)
      : settings_(settings),
        acceptance_(acceptance),
        schedule_({.kind = settings.kind,
                   .rings = {.windows = settings.windows,
                             .memory_bytes = settings.machine.memory_bytes,
                             .weight_bytes = settings.load.weight_bytes},
                   .link_bandwidth = settings.machine.link_bandwidth,
                   .draft_length = settings.draft_length}),
        link_(settings.machine.link_bandwidth, settings.load.cache_bytes, settings.requests),
        drafted_(settings.requests),
        emitted_(settings.requests),
        rounds_(settings.requests),
        random_(settings.seed, "accepted drafts") {
    for (int64_t i = 0; i < settings.requests; ++i) {
      if (settings.load_at_arrival) {
        (void)schedule_.add_load(bytes_at_arrival(i), bytes_at_arrival(i));
        arriving_bytes_ += bytes_at_arrival(i);
      } else {
        join(i);
      }
    }
  }

  ModelledRun run() {
    while (run_.tokens < settings_.requests * settings_.output_tokens) iterate();
    run_.seconds = link_.now;
    run_.link_busy_seconds = link_.busy_seconds;
    run_.late_verifies = schedule_.late_verifies();
    return std::move(run_);
  }

 private:
  [[nodiscard]] double compressed() const { return settings_.kept * settings_.load.cache_bytes; }

  [[nodiscard]] double gpu_seconds(int64_t drafting, int64_t verifying) const {
    return (settings_.load.weight_bytes + static_cast<double>(drafting) * compressed() +
            static_cast<double>(verifying) * settings_.load.cache_bytes) /
           settings_.machine.memory_bandwidth;
  }

  /// Caches that a request has on the accelerator from its arrival on.
  [[nodiscard]] double bytes_at_arrival(int64_t request) const {
    return compressed() + (request < settings_.resident ? settings_.load.cache_bytes : 0);
  }

  void join(int64_t request) {
    const int64_t id = schedule_.add(settings_.load.cache_bytes, compressed());
    stays_.push_back(request < settings_.resident);
    if (!stays_.back()) return;
    schedule_.pin(id);
    link_.holding.push_back(id);
  }

  [[nodiscard]] double memory_bytes() const {
    return settings_.load.weight_bytes + static_cast<double>(schedule_.running()) * compressed() +
           static_cast<double>(link_.holding.size()) * settings_.load.cache_bytes + arriving_bytes_;
  }

  void iterate() {
    for (const int64_t load : link_.loads_that_came()) {
      schedule_.loaded(load);
      arriving_bytes_ -= bytes_at_arrival(load);
      join(load);
    }
    const double expected = gpu_seconds(schedule_.running(), 0);
    link_.iteration_seconds = expected;
    const IterationPlan plan = schedule_.next(expected, link_);
    for (const int64_t load : plan.loads) link_.begin_load(load, bytes_at_arrival(load));
    ScheduledIteration iteration{.memory_bytes = memory_bytes(),
                                 .drafting = static_cast<int64_t>(plan.draft.size()),
                                 .verifying = static_cast<int64_t>(plan.verify.size())};
    const bool idle = plan.draft.empty() && plan.verify.empty();
    iteration.seconds = idle ? link_.wait_seconds() : gpu_seconds(iteration.drafting, iteration.verifying);
    KVARENA_ASSERT(iteration.seconds > 0, "an idle iteration waits for a reload");
    link_.now += iteration.seconds;
    for (const int64_t request : plan.draft) ++drafted_[request];
    for (const int64_t request : plan.verify) verify(request);
    schedule_.advance();
    run_.peak_bytes = std::max(run_.peak_bytes, iteration.memory_bytes);
    run_.iterations.push_back(iteration);
  }

  void verify(int64_t request) {
    const int64_t accepted = draw_accepted(request, drafted_[request]);
    const int64_t room = settings_.output_tokens - emitted_[request];
    const int64_t emitted = std::min(accepted + 1, room);
    emitted_[request] += emitted;
    run_.tokens += emitted;
    drafted_[request] = 0;
    const bool finished = emitted_[request] >= settings_.output_tokens;
    if (finished || !stays_[static_cast<size_t>(request)]) std::erase(link_.holding, request);
    schedule_.verified(request, finished);
  }

  /// The length of a run of acceptances: survival to position i is accepted(i) - accepted(i - 1).
  int64_t draw_accepted(int64_t request, int64_t drafted) {
    const double u = random_.uniform(static_cast<uint64_t>(request) * 1'000'000 + rounds_[request]++);
    int64_t accepted = 0;
    const int64_t most = std::min(drafted, acceptance_.max_draft_length());
    while (accepted < most && u < acceptance_.accepted(accepted + 1) - acceptance_.accepted(accepted)) ++accepted;
    return accepted;
  }

  ModelledSettings settings_;
  const AcceptanceCurve& acceptance_;
  VerificationSchedule schedule_;
  ModelledLink link_;
  double arriving_bytes_ = 0;  // of loads that have not come, whose room is theirs already
  std::vector<bool> stays_;    // by request of the schedule, whether its full cache does
  std::vector<int64_t> drafted_, emitted_;
  std::vector<uint64_t> rounds_;
  RandomStream random_;
  ModelledRun run_;
};

}  // namespace

ModelledRun run_modelled(const ModelledSettings& settings, const AcceptanceCurve& acceptance) {
  const int64_t full = std::min(settings.resident + 1, settings.requests);
  const double caches = static_cast<double>(settings.requests) * settings.kept + static_cast<double>(full);
  const double needed = settings.load.weight_bytes + caches * settings.load.cache_bytes;
  if (settings.kind != ScheduleKind::lock_step && needed > settings.machine.memory_bytes) {
    fail({.place = "modelled run",
          .found = fmt::format("{:.3g} bytes for weights, {} compressed caches and {} full ones", needed,
                               settings.requests, full),
          .expected = fmt::format("at most {:.3g}, the machine's memory", settings.machine.memory_bytes),
          .action = "run fewer requests or compress more"});
  }
  const bool longer = settings.load_at_arrival && settings.resident > 0;  // a load brings both caches
  const double reload_seconds =
      (longer ? 1 + settings.kept : 1) * settings.load.cache_bytes / settings.machine.link_bandwidth;
  const double shortest_iteration = settings.load.weight_bytes / settings.machine.memory_bandwidth;
  const auto most = static_cast<double>(settings.windows - 1);
  if (settings.kind == ScheduleKind::staggered && reload_seconds > most * shortest_iteration) {
    fail({.place = "modelled run",
          .found = fmt::format("reloads of {:.3g} s beside iterations of {:.3g} s", reload_seconds, shortest_iteration),
          .expected = fmt::format("reloads of at most {} iterations, the horizon", settings.windows - 1),
          .action = "look further ahead (windows) or take a faster link"});
  }
  return Simulation(settings, acceptance).run();
}

}  // namespace kvarena::cost_model
