#include "harness/cost_model/modelled_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/core/random.h"

namespace kvarena::cost_model {
namespace {

/// A link that transfers one reload after the other at a fixed rate.
class ModelledLink final : public ReloadLink {
 public:
  ModelledLink(double bandwidth, double bytes, int64_t requests)
      : transfer_seconds_(bytes / bandwidth), arrival_(requests, 0.0) {}

  void begin(int64_t request) override {
    free_at_ = std::max(free_at_, now) + transfer_seconds_;
    arrival_[request] = free_at_;
    busy_seconds += transfer_seconds_;
    holding.push_back(request);
  }
  [[nodiscard]] bool arrives_in_time(int64_t request) const override {
    return arrival_[request] <= now + iteration_seconds;
  }
  [[nodiscard]] double next_arrival() const {
    double first = free_at_;
    for (const int64_t request : holding) {
      if (arrival_[request] > now) first = std::min(first, arrival_[request]);
    }
    return first;
  }

  double now = 0;
  double iteration_seconds = 0;  // duration of a draft iteration: the limit of a reload
  double busy_seconds = 0;
  std::vector<int64_t> holding;  // requests whose full cache is on its way or there

 private:
  double transfer_seconds_;
  double free_at_ = 0;
  std::vector<double> arrival_;
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
    for (int64_t i = 0; i < settings.requests; ++i) (void)schedule_.add(settings.load.cache_bytes, compressed());
    for (int64_t i = 0; i < settings.resident; ++i) {
      schedule_.pin(i);
      link_.holding.push_back(i);
    }
  }

  ModelledRun run() {
    while (schedule_.running() > 0) iterate();
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

  void iterate() {
    const double expected = gpu_seconds(schedule_.running(), 0);
    link_.iteration_seconds = expected;
    const IterationPlan plan = schedule_.next(expected, link_);
    ScheduledIteration iteration{.memory_bytes = settings_.load.weight_bytes +
                                                 static_cast<double>(schedule_.running()) * compressed() +
                                                 static_cast<double>(link_.holding.size()) * settings_.load.cache_bytes,
                                 .drafting = static_cast<int64_t>(plan.draft.size()),
                                 .verifying = static_cast<int64_t>(plan.verify.size())};
    const bool idle = plan.draft.empty() && plan.verify.empty();
    iteration.seconds = idle ? link_.next_arrival() - link_.now : gpu_seconds(iteration.drafting, iteration.verifying);
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
    if (finished || request >= settings_.resident) std::erase(link_.holding, request);
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
  const double reload_seconds = settings.load.cache_bytes / settings.machine.link_bandwidth;
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
