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
      if (std::ranges::all_of(run_.sessions, [](const auto& session) { return session->finished(); })) break;
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
    while (static_cast<int64_t>(run_.sessions.size()) < settings_.requests && next_fits()) {
      const int64_t beside = device_bytes();  // that others hold while this one begins with all its layers
      std::unique_ptr<Session>& session =
          run_.sessions.emplace_back(start_session(*model_, *prompt_, *method_, options_));
      session->stop_sharing();
      if (run_.sessions.size() == 1) measure_least(*session);
      share_room(*session);
      if (least_) note_peak(beside + session->peak_bytes);
      run_to_first_token(*model_, *session);
      if (scheduled_) note_peak(beside + dynamic_cast<VerifySession&>(*session).start_bytes());
      if (run_.sessions.size() == 1) measure(*session);
      serving::Admission::Place& place = places_.emplace_back();
      if (session->finished()) continue;
      if (scheduled_) {
        scheduled_->add(dynamic_cast<VerifySession&>(*session), full_, each_);
      } else {
        place = admission_->admit({.own = each_});
      }
    }
    run_.peak_running = std::max(run_.peak_running, running());
  }

  [[nodiscard]] int64_t running() const {
    return std::ranges::count_if(run_.sessions, [](const auto& session) { return !session->finished(); });
  }

  /// Finds what every request needs at least, where requests give up room to others.
  void measure_least(const Session& first) {
    const auto* const plain = dynamic_cast<const PlainSession*>(&first);
    if (plain != nullptr) least_ = plain->least_bytes(prompt_tokens() + options_.most_tokens());
  }

  /// Lets a request that can hold its part of the room, of all that run together.
  void share_room(Session& session) const {
    if (!least_) return;
    const int64_t left = settings_.requests - std::ssize(run_.sessions) + running();
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
    if (run_.sessions.empty()) return true;
    if (scheduled_) return scheduled_->may_start(full_, each_);
    return admission_->fits({.own = each_});
  }

  [[nodiscard]] std::vector<PassMember*> turn() {
    std::vector<PassMember*> fed;
    if (scheduled_) {
      for (VerifySession* session : scheduled_->next()) fed.push_back(session);
      return fed;
    }
    for (const auto& session : run_.sessions) {
      if (!session->finished()) fed.push_back(session.get());
    }
    return fed;
  }

  [[nodiscard]] int64_t device_bytes() const {
    int64_t bytes = 0;
    for (const auto& session : run_.sessions) bytes += session->finished() ? 0 : session->held_bytes();
    return bytes;
  }

  void note_peak(int64_t bytes) { run_.peak_bytes = std::max(run_.peak_bytes, bytes); }

  void pass() {
    const auto start = Clock::now();
    const std::vector<PassMember*> fed = turn();
    const int64_t verifying = scheduled_ ? scheduled_->verifying() : 0;
    for (const auto& session : run_.sessions) {
      if (!session->finished()) share_room(*session);
    }
    const int64_t held = device_bytes();
    note_peak(held);
    run_pass(*model_, fed);
    for (size_t i = 0; i < places_.size(); ++i) {
      if (run_.sessions[i]->finished()) places_[i].reset();
    }
    const double seconds = seconds_since(start);
    if (scheduled_) scheduled_->advance(seconds);
    run_.seconds += seconds;
    run_.passes.push_back({.seconds = seconds,
                           .memory_bytes = static_cast<double>(held),
                           .drafting = scheduled_ ? static_cast<int64_t>(fed.size()) - verifying : 0,
                           .verifying = verifying});
    if (events_.passed) events_.passed(*run_.sessions.front(), seconds);
  }

  Transformer* model_;
  const Prefill* prompt_;
  const Method* method_;
  SessionOptions options_;
  BatchRunSettings settings_;
  const BatchRunEvents& events_;
  storage::Link* load_ = nullptr;  // that full caches come over
  BatchRun run_;
  std::shared_ptr<serving::Admission> admission_;
  std::vector<serving::Admission::Place> places_;  // by session, of plain requests
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
