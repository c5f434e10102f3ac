#include "harness/engine/serving/batch_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "harness/core/error.h"
#include "harness/core/seconds_since.h"
#include "harness/engine/serving/scheduled_decoding.h"
#include "harness/engine/session/plain_session.h"
#include "harness/engine/session/request_bytes.h"

namespace kvarena {
namespace {

using Clock = std::chrono::steady_clock;

class Batch {
 public:
  Batch(Transformer& model, const Prefill& prompt, const Method& method, const SessionOptions& options,
        const BatchRunSettings& settings, const BatchRunEvents& events)
      : model_(&model),
        prompt_(&prompt),
        method_(&method),
        options_(options),
        settings_(settings),
        events_(events),
        admission_(std::make_shared<serving::Admission>(settings.device_bytes)) {
    if (!has_schedule(method)) return;
    run_.scheduled = true;
    const ScheduledSettings scheduled = scheduled_settings(method, model, prompt.model->tiers);
    options_.offload_tier = scheduled.tier;
    load_ = &prompt.model->tiers->load(scheduled.tier);
    run_.link_bytes_per_s = scheduled.link_bytes_per_s;
    scheduled_.emplace(scheduled, admission_);
  }

  BatchRun run() {
    const double busy_before = link_seconds();
    while (true) {
      start_what_fits();
      if (running() == 0) break;
      pass();
    }
    run_.link_busy_seconds = link_seconds() - busy_before;
    if (scheduled_) {
      run_.late_verifies = scheduled_->late_verifies();
      run_.peak_pinned = scheduled_->peak_pinned();
      run_.fallen_back = scheduled_->fallen_back();
    }
    return std::move(run_);
  }

 private:
  [[nodiscard]] double link_seconds() const { return load_ == nullptr ? 0 : load_->totals().busy_seconds; }
  [[nodiscard]] int64_t prompt_tokens() const {
    return static_cast<int64_t>(prompt_->tokens.size() + options_.question.size());
  }

  void start_what_fits() {
    while (std::ssize(sessions_) < settings_.requests && next_fits()) {
      const int64_t beside = device_bytes();  // that others hold while this one begins with all its layers
      std::unique_ptr<Session>& session = sessions_.emplace_back(start_session(*model_, *prompt_, *method_, options_));
      session->stop_sharing();
      if (sessions_.size() == 1) measure_least(*session);
      share_room(*session);
      if (least_) note_peak(beside + session->peak_bytes);
      run_to_first_token(*model_, *session);
      if (scheduled_) note_peak(beside + dynamic_cast<VerifySession&>(*session).start_bytes());
      if (sessions_.size() == 1) measure(*session);
      places_.emplace_back();
      run_.sessions.emplace_back();
      if (session->finished()) {
        free_finished();
      } else if (scheduled_) {
        scheduled_->add(dynamic_cast<VerifySession&>(*session), full_, each_);
      } else {
        places_.back() = admission_->admit({.own = each_});
      }
    }
    run_.peak_running = std::max(run_.peak_running, running());
  }

  [[nodiscard]] int64_t running() const {
    return std::ranges::count_if(sessions_, [](const auto& session) { return session != nullptr; });
  }

  /// Frees the caches and the room of requests that have finished, of which what they counted stays.
  void free_finished() {
    for (size_t i = 0; i < sessions_.size(); ++i) {
      if (!sessions_[i] || !sessions_[i]->finished()) continue;
      run_.sessions[i] = std::make_unique<SessionResult>(std::move(static_cast<SessionResult&>(*sessions_[i])));
      sessions_[i].reset();
      places_[i].reset();
    }
  }

  [[nodiscard]] const SessionResult& first() const {
    return sessions_.front() ? static_cast<const SessionResult&>(*sessions_.front()) : *run_.sessions.front();
  }

  /// Finds what every request needs at least, where requests give up room to others.
  void measure_least(const Session& first) {
    const auto* const plain = dynamic_cast<const PlainSession*>(&first);
    if (plain != nullptr) least_ = plain->least_bytes(prompt_tokens() + options_.most_tokens());
  }

  /// Lets a request that can hold its part of the room, of all that run together.
  void share_room(Session& session) const {
    if (!least_) return;
    const int64_t left = settings_.requests - std::ssize(sessions_) + running();
    const int64_t fit = std::max<int64_t>(1, settings_.device_bytes / std::max<int64_t>(1, *least_));
    dynamic_cast<PlainSession&>(session).hold_at_most(settings_.device_bytes / std::min(left, fit));
  }

  /// Finds what every request may come to hold, known once the first has started.
  void measure(const Session& first) {
    if (events_.started) events_.started();
    const int64_t n = prompt_tokens(), answer = options_.most_tokens();
    each_ = least_ ? *least_ : bytes_to_end(*model_, *method_, first, first.held_bytes(), n, answer);
    full_ = full_cache_bytes(*model_, n + answer);
    if (scheduled_) return;  // which says itself whether one fits
    if (admission_->fits({.own = each_})) return;
    fail({.place = "device memory for caches",
          .found = fmt::format("{} bytes that one request may come to hold", each_),
          .expected = fmt::format("at most {}", settings_.device_bytes),
          .action = "give the device more room or compress more"});
  }

  [[nodiscard]] bool next_fits() {
    if (sessions_.empty()) return true;
    if (scheduled_) return scheduled_->may_start(full_, each_);
    return admission_->fits({.own = each_});
  }

  [[nodiscard]] std::vector<PassMember*> turn() {
    std::vector<PassMember*> fed;
    if (scheduled_) {
      for (VerifySession* session : scheduled_->next()) fed.push_back(session);
      return fed;
    }
    for (const auto& session : sessions_) {
      if (session) fed.push_back(session.get());
    }
    return fed;
  }

  [[nodiscard]] int64_t device_bytes() const {
    int64_t bytes = 0;
    for (const auto& session : sessions_) bytes += session ? session->held_bytes() : 0;
    return bytes;
  }

  void note_peak(int64_t bytes) { run_.peak_bytes = std::max(run_.peak_bytes, bytes); }

  void pass() {
    const auto start = Clock::now();
    const std::vector<PassMember*> fed = turn();
    const int64_t verifying = scheduled_ ? scheduled_->verifying() : 0;
    for (const auto& session : sessions_) {
      if (session) share_room(*session);
    }
    const int64_t held = device_bytes();
    note_peak(held);
    run_pass(*model_, fed);
    const double seconds = seconds_since(start);
    if (scheduled_) scheduled_->advance(seconds);
    free_finished();
    run_.seconds += seconds;
    run_.passes.push_back({.seconds = seconds,
                           .memory_bytes = static_cast<double>(held),
                           .drafting = scheduled_ ? static_cast<int64_t>(fed.size()) - verifying : 0,
                           .verifying = verifying});
    if (events_.passed) events_.passed(first(), seconds);
  }

  Transformer* model_;
  const Prefill* prompt_;
  const Method* method_;
  SessionOptions options_;
  BatchRunSettings settings_;
  const BatchRunEvents& events_;
  storage::Link* load_ = nullptr;  // that full caches come over
  BatchRun run_;
  std::vector<std::unique_ptr<Session>> sessions_;  // by request, null once it has finished
  std::shared_ptr<serving::Admission> admission_;
  std::vector<serving::Admission::Place> places_;  // by request, of plain ones
  std::optional<ScheduledDecoding> scheduled_;
  std::optional<int64_t> least_;  // bytes that a request needs, of those that give up room
  int64_t each_ = 0;              // bytes of a request
  int64_t full_ = 0;              // of its full cache, where that is offloaded
};

}  // namespace

BatchRun run_batch(Transformer& model, const Prefill& prompt, const Method& method, const SessionOptions& options,
                   const BatchRunSettings& settings, const BatchRunEvents& events) {
  return Batch(model, prompt, method, options, settings, events).run();
}

}  // namespace kvarena
