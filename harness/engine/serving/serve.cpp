#include "harness/engine/serving/serve.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/core/error.h"

namespace kvarena::serving {
namespace {

class Server {
 public:
  Server(Load load, Executor& executor, const BatchSettings& settings)
      : load_(std::move(load)), executor_(executor), schedule_(settings) {
    run_.requests.resize(static_cast<size_t>(load_.requests()));
  }

  ServingRun run() {
    while (true) {
      arrive();
      lose_patience();
      for (const int64_t request : schedule_.admit()) {
        of(request).admitted_s = now_;
        reserved_[request] = executor_.needs(request).bytes;
      }
      run_.peak_waiting = std::max(run_.peak_waiting, schedule_.waiting());
      run_.peak_running = std::max(run_.peak_running, schedule_.running());
      PassPlan plan = schedule_.next();
      plan.at_s = now_;
      if (!plan.empty()) {
        pass(plan);
      } else if (const auto next = load_.next_time()) {
        const double worked = executor_.idle(plan, *next - now_);
        now_ = worked > 0 ? now_ + worked : std::max(now_, *next);
      } else {
        break;
      }
    }
    KVARENA_ASSERT(schedule_.waiting() == 0 && inside_.empty(), fmt::format("{} requests left behind", inside_.size()));
    run_.seconds = now_ - (run_.requests.empty() ? 0 : run_.requests.front().arrival_s);
    run_.peak_reserved_bytes = schedule_.peak_reserved_bytes();
    return std::move(run_);
  }

 private:
  Timeline& of(int64_t request) { return run_.requests[static_cast<size_t>(request)]; }

  void arrive() {
    for (auto time = load_.next_time(); time && *time <= now_; time = load_.next_time()) {
      const int64_t request = load_.take();
      of(request).arrival_s = *time;
      inside_.insert(request);
      const RequestNeeds needs = executor_.needs(request);
      std::string refusal = needs.refusal;
      if (refusal.empty()) refusal = schedule_.submit(request, needs.prompt_tokens, needs.bytes);
      if (!refusal.empty()) leave(request, Outcome::refused, std::move(refusal));
    }
  }

  void lose_patience() {
    std::vector<int64_t> gone;
    for (const int64_t request : inside_) {
      if (now_ - of(request).arrival_s > executor_.needs(request).patience_s) gone.push_back(request);
    }
    for (const int64_t request : gone) {
      if (reserved_.contains(request)) executor_.drop(request);
      leave(request, Outcome::cancelled,
            fmt::format("the client left after {:.3g} s", executor_.needs(request).patience_s));
    }
  }

  void leave(int64_t request, Outcome outcome, std::string reason) {
    const bool was_inside = inside_.erase(request) == 1;
    KVARENA_ASSERT(was_inside, fmt::format("request {} leaves twice", request));
    schedule_.leave(request);
    reserved_.erase(request);
    Timeline& timeline = of(request);
    timeline.left_s = now_;
    timeline.outcome = outcome;
    timeline.reason = std::move(reason);
    load_.left(now_);
  }

  void pass(const PassPlan& plan) {
    const PassResult result = executor_.run(plan);
    now_ += result.seconds;
    run_.busy_seconds += result.seconds;
    ++run_.passes;
    for (const PassPlan::Chunk& chunk : plan.chunks) {
      const bool waits = std::ranges::find(result.waiting, chunk.request) != result.waiting.end();
      if (!waits) schedule_.prefilled(chunk.request, chunk.tokens);
    }
    for (const RequestProgress& progress : result.progress) take(progress);
    account();
  }

  void take(const RequestProgress& progress) {
    Timeline& timeline = of(progress.request);
    const bool first = timeline.token_s.empty() && progress.tokens > 0;
    timeline.token_s.insert(timeline.token_s.end(), static_cast<size_t>(progress.tokens), now_);
    if (!progress.failure.empty()) {
      leave(progress.request, Outcome::failed, progress.failure);
    } else if (progress.finished) {
      leave(progress.request, Outcome::answered, "");
    } else {
      if (progress.prompt_left) schedule_.correct(progress.request, *progress.prompt_left);
      if (!first) return;
      // From here on others may use what compression saved; a method that needs more than was reserved gets it, and
      // admission waits until the budget is whole again.
      const int64_t bytes = executor_.bytes_to_end(progress.request);
      schedule_.hold(progress.request, bytes);
      reserved_[progress.request] = bytes;
    }
  }

  void account() {
    int64_t held = 0;
    for (const auto& [request, bytes] : reserved_) {
      const int64_t here = executor_.bytes_now(request);
      held += here;
      run_.overrun_bytes = std::max(run_.overrun_bytes, here - bytes);
    }
    run_.peak_held_bytes = std::max(run_.peak_held_bytes, held);
  }

  Load load_;
  Executor& executor_;
  BatchSchedule schedule_;
  ServingRun run_;
  double now_ = 0;
  std::set<int64_t> inside_;             // arrived and not left
  std::map<int64_t, int64_t> reserved_;  // admitted and not left
};

}  // namespace

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::answered: return "answered";
    case Outcome::refused: return "refused";
    case Outcome::failed: return "failed";
    case Outcome::cancelled: return "cancelled";
  }
  return "";
}

ServingRun serve(Load load, Executor& executor, const BatchSettings& settings) {
  return Server(std::move(load), executor, settings).run();
}

}  // namespace kvarena::serving
