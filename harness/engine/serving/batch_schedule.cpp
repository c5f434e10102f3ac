#include "harness/engine/serving/batch_schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena::serving {

BatchSchedule::BatchSchedule(const BatchSettings& settings)
    : settings_(settings), memory_(std::make_shared<Admission>(settings.cache_bytes)) {
  if (settings.max_running >= 1 && settings.max_running < settings.pass_tokens) return;
  fail({.place = "serving",
        .found = fmt::format("{} running requests in passes of {} tokens", settings.max_running, settings.pass_tokens),
        .expected = "at least one, and passes that hold a step of each and a token of a prompt",
        .action = "raise pass_tokens or lower max_running"});
}

std::string BatchSchedule::submit(int64_t request, int64_t prompt_tokens, int64_t bytes) {
  if (bytes > settings_.cache_bytes) {
    return describe({.place = fmt::format("request of {} prompt tokens", prompt_tokens),
                     .found = fmt::format("up to {} bytes of cache", bytes),
                     .expected = fmt::format("at most {}, the budget of all requests together", settings_.cache_bytes),
                     .action = "raise cache_bytes, cut the prompt or ask for fewer tokens"});
  }
  queue_.push_back({.request = request, .prompt_left = prompt_tokens, .promise = {.own = bytes}});
  return "";
}

std::vector<int64_t> BatchSchedule::admit(const std::function<bool(int64_t bytes)>& may_have) {
  std::vector<int64_t> admitted;
  while (!queue_.empty() && running() < settings_.max_running && memory_->fits(queue_.front().promise)) {
    const Waiting& next = queue_.front();
    if (may_have && !may_have(next.promise.own)) break;
    running_[next.request] = {
        .prompt_left = next.prompt_left, .order = admitted_++, .place = memory_->admit(next.promise)};
    admitted.push_back(next.request);
    queue_.pop_front();
  }
  return admitted;
}

PassPlan BatchSchedule::next() const {
  PassPlan plan;
  std::vector<std::pair<int64_t, PassPlan::Chunk>> prompts;  // by order of admission
  for (const auto& [request, entry] : running_) {
    if (entry.prompt_left == 0) {
      plan.steps.push_back(request);
    } else {
      prompts.push_back({entry.order, {.request = request, .tokens = entry.prompt_left}});
    }
  }
  std::ranges::sort(prompts, {}, [](const auto& item) { return item.first; });
  int64_t room = settings_.pass_tokens - static_cast<int64_t>(plan.steps.size());
  for (auto& [order, chunk] : prompts) {
    chunk.tokens = std::min(chunk.tokens, room);
    if (chunk.tokens == 0) break;
    room -= chunk.tokens;
    plan.chunks.push_back(chunk);
  }
  plan.room = {.requests = settings_.max_running - running(),
               .tokens = room,
               .bytes = settings_.cache_bytes - memory_->promised()};
  return plan;
}

void BatchSchedule::prefilled(int64_t request, int64_t tokens) {
  Running& entry = running_.at(request);
  KVARENA_ASSERT(tokens <= entry.prompt_left, fmt::format("{} of {} tokens", tokens, entry.prompt_left));
  entry.prompt_left -= tokens;
}

void BatchSchedule::correct(int64_t request, int64_t prompt_left) { running_.at(request).prompt_left = prompt_left; }

void BatchSchedule::hold(int64_t request, int64_t bytes) {
  Admission::Place& place = running_.at(request).place;
  place.reset();
  place = memory_->admit({.own = bytes});
}

void BatchSchedule::leave(int64_t request) {
  running_.erase(request);
  std::erase_if(queue_, [&](const Waiting& waiting) { return waiting.request == request; });
}

}  // namespace kvarena::serving
