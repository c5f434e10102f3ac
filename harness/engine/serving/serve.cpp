#include "harness/engine/serving/serve.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena::serving {

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::answered: return "answered";
    case Outcome::refused: return "refused";
    case Outcome::failed: return "failed";
    case Outcome::cancelled: return "cancelled";
  }
  return "";
}

double first_arrival_s(std::span<const Timeline> requests) {
  return requests.empty() ? 0 : std::ranges::min(requests, {}, &Timeline::arrival_s).arrival_s;
}

ServingLoop::ServingLoop(Executor& executor, const BatchSettings& settings, OnLeft on_left)
    : executor_(executor), schedule_(settings), on_left_(std::move(on_left)) {
  executor_.share(schedule_.memory());
}

void ServingLoop::arrive(int64_t request, double at_s) {
  const RequestNeeds needs = executor_.needs(request);
  inside_[request] = {.timeline = {.arrival_s = at_s}, .patience_s = needs.patience_s, .reserved = {}};
  std::string refusal = needs.refusal;
  if (refusal.empty()) refusal = schedule_.submit(request, needs.prompt_tokens, needs.bytes);
  if (!refusal.empty()) leave(request, Outcome::refused, std::move(refusal));
}

void ServingLoop::cancel(int64_t request, const std::string& reason) {
  const auto found = inside_.find(request);
  KVARENA_ASSERT(found != inside_.end(), fmt::format("request {} is not inside", request));
  if (found->second.reserved) executor_.drop(request);
  leave(request, Outcome::cancelled, reason);
}

std::optional<std::vector<RequestProgress>> ServingLoop::pass() {
  lose_patience();
  admit();
  PassPlan plan = schedule_.next();
  if (plan.empty()) return std::nullopt;
  plan.at_s = now_;
  PassResult result = executor_.run(plan);
  now_ += result.seconds;
  totals_.busy_seconds += result.seconds;
  if (!result.progress.empty() || result.waiting.empty()) ++totals_.passes;  // otherwise all waited
  for (const PassPlan::Chunk& chunk : plan.chunks) {
    const bool waits = std::ranges::find(result.waiting, chunk.request) != result.waiting.end();
    if (!waits) schedule_.prefilled(chunk.request, chunk.tokens);
  }
  for (const RequestProgress& progress : result.progress) take(progress);
  account(result.in_turn_bytes);
  return std::move(result.progress);
}

void ServingLoop::wait_until(double at_s) {
  if (at_s <= now_) return;
  PassPlan empty = schedule_.next();
  empty.at_s = now_;
  const double worked = executor_.idle(empty, at_s - now_);
  now_ = worked > 0 ? now_ + worked : std::max(now_, at_s);
}

ServingRun ServingLoop::totals() const {
  ServingRun totals = totals_;
  totals.peak_reserved_bytes = schedule_.peak_reserved_bytes();
  return totals;
}

void ServingLoop::lose_patience() {
  std::vector<int64_t> gone;
  for (const auto& [request, entry] : inside_) {
    if (now_ - entry.timeline.arrival_s > entry.patience_s) gone.push_back(request);
  }
  for (const int64_t request : gone) {
    cancel(request, fmt::format("the client left after {:.3g} s", inside_.at(request).patience_s));
  }
}

void ServingLoop::admit() {
  for (const int64_t request : schedule_.admit([&](int64_t bytes) { return executor_.may_have(bytes); })) {
    Inside& entry = inside_.at(request);
    entry.timeline.admitted_s = now_;
    entry.reserved = executor_.needs(request).bytes;
  }
  totals_.peak_waiting = std::max(totals_.peak_waiting, schedule_.waiting());
  totals_.peak_running = std::max(totals_.peak_running, schedule_.running());
}

void ServingLoop::leave(int64_t request, Outcome outcome, std::string reason) {
  auto node = inside_.extract(request);
  KVARENA_ASSERT(!node.empty(), fmt::format("request {} leaves twice", request));
  schedule_.leave(request);
  Timeline& timeline = node.mapped().timeline;
  timeline.left_s = now_;
  timeline.outcome = outcome;
  timeline.reason = std::move(reason);
  on_left_(request, std::move(timeline));
}

void ServingLoop::take(const RequestProgress& progress) {
  Inside& entry = inside_.at(progress.request);
  std::vector<double>& token_s = entry.timeline.token_s;
  const bool begun = progress.begun || (token_s.empty() && progress.tokens > 0);
  token_s.insert(token_s.end(), static_cast<size_t>(progress.tokens), now_);
  if (!progress.failure.empty()) {
    leave(progress.request, Outcome::failed, progress.failure);
  } else if (progress.finished) {
    leave(progress.request, Outcome::answered, "");
  } else {
    if (progress.prompt_left) schedule_.correct(progress.request, *progress.prompt_left);
    if (!begun) return;
    // From here on others may use what compression saved; a method that needs more than was reserved gets it, and
    // admission waits until the budget is whole again.
    const int64_t bytes = executor_.bytes_to_end(progress.request);
    schedule_.hold(progress.request, bytes);
    entry.reserved = bytes;
  }
}

void ServingLoop::account(int64_t in_turn_bytes) {
  int64_t held = in_turn_bytes;
  for (const auto& [request, entry] : inside_) {
    if (!entry.reserved) continue;
    const int64_t here = executor_.bytes_now(request);
    held += here;
    totals_.overrun_bytes = std::max(totals_.overrun_bytes, here - *entry.reserved);
  }
  totals_.peak_held_bytes = std::max(totals_.peak_held_bytes, held);
}

ServingRun serve(Load load, Executor& executor, const BatchSettings& settings) {
  std::vector<Timeline> requests(static_cast<size_t>(load.requests()));
  ServingLoop loop(executor, settings, [&](int64_t request, Timeline timeline) {
    load.left(request, timeline.left_s);
    requests[static_cast<size_t>(request)] = std::move(timeline);
  });
  while (true) {
    for (auto time = load.next_time(); time && *time <= loop.now(); time = load.next_time()) {
      loop.arrive(load.take(), *time);
    }
    if (loop.pass()) continue;
    const auto next = load.next_time();
    if (!next) break;
    loop.wait_until(*next);
  }
  KVARENA_ASSERT(loop.inside() == 0, fmt::format("{} requests left behind", loop.inside()));
  ServingRun run = loop.totals();
  run.seconds = loop.now() - first_arrival_s(requests);
  run.requests = std::move(requests);
  return run;
}

}  // namespace kvarena::serving
