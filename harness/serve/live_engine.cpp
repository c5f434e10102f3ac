#include "harness/serve/live_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/serve/api_error.h"

namespace kvarena::serve {

using serving::Outcome;

LiveEngine::LiveEngine(Transformer& model, std::shared_ptr<const ModelFacts> facts, const LiveSettings& settings,
                       ServerMetrics& metrics)
    : settings_(settings),
      metrics_(metrics),
      engine_(model, {}, std::move(facts)),
      loop_(engine_, settings.batch,
            [this](int64_t number, const serving::Timeline& timeline) { left(number, timeline); }),
      thread_([this] { work(); }) {}

LiveEngine::~LiveEngine() { stop(0); }

std::shared_ptr<AnswerStream> LiveEngine::submit(LiveRequest request) {
  auto stream = std::make_shared<AnswerStream>();
  {
    const std::lock_guard lock(mutex_);
    if (deadline_) throw ApiError(503, "the server is stopping");
    const int64_t most = settings_.batch.max_running + settings_.most_waiting;
    if (inside_ >= most) {
      throw ApiError(429, fmt::format("{} requests are being answered or wait, as many as this server takes; try again "
                                      "later",
                                      inside_));
    }
    ++inside_;
    arrivals_.push_back({.number = next_++, .request = std::move(request), .stream = stream, .at_s = seconds()});
  }
  changed_.notify_one();
  return stream;
}

void LiveEngine::stop(double grace_s) {
  {
    const std::lock_guard lock(mutex_);
    const auto wanted =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(grace_s));
    deadline_ = deadline_ ? std::min(*deadline_, wanted) : wanted;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool LiveEngine::stopping() const {
  const std::lock_guard lock(mutex_);
  return deadline_.has_value();
}

void LiveEngine::work() {
  while (await()) {
    drop_cancelled();
    run_pass();
  }
}

bool LiveEngine::await() {
  std::vector<Arrival> arrivals;
  bool over = false;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return inside_ > 0 || deadline_; });
    if (inside_ == 0) return false;
    arrivals = std::exchange(arrivals_, {});
    over = deadline_ && Clock::now() >= *deadline_;
  }
  loop_.wait_until(seconds());
  for (Arrival& arrival : arrivals) take(std::move(arrival));
  if (over) close("the server stops", /*closing=*/true);
  return true;
}

void LiveEngine::take(Arrival arrival) {
  LiveRequest& request = arrival.request;
  Entry entry{.model = std::move(request.model), .stream = arrival.stream, .scores = {}};
  ServedRequest& served = request.served;
  served.patience_s = settings_.timeout_s;
  entry.forced = served.options.forced ? std::ssize(*served.options.forced) : 0;
  entry.prompt_tokens = std::ssize(served.prompt) + std::ssize(served.options.question) + entry.forced;
  if (request.logprobs) {
    entry.scores = std::make_shared<PendingScores>(*request.logprobs);
    served.options.on_logits = [scores = entry.scores](int64_t, std::span<const float> logits) { scores->add(logits); };
  }
  if (request.scores_prompt) {
    served.on_prompt_logits = [stream = entry.stream, prompt = served.prompt, count = request.logprobs.value_or(0)](
                                  int64_t step, std::span<const float> logits) {
      const auto next = static_cast<size_t>(step) + 1;  // the last row is that of the first new token
      if (next < prompt.size()) stream->push_prompt_scores({score_token(logits, prompt[next], count)});
    };
  }
  engine_.add(arrival.number, std::move(served));
  entries_[arrival.number] = std::move(entry);
  loop_.arrive(arrival.number, arrival.at_s);
}

void LiveEngine::drop_cancelled() {
  std::vector<int64_t> gone;
  for (const auto& [number, entry] : entries_) {
    if (entry.stream->cancelled()) gone.push_back(number);
  }
  for (const int64_t number : gone) loop_.cancel(number, "the client has gone");
}

void LiveEngine::close(const std::string& reason, bool closing) {
  std::vector<int64_t> numbers;
  for (auto& [number, entry] : entries_) {
    entry.closing = closing;
    numbers.push_back(number);
  }
  for (const int64_t number : numbers) loop_.cancel(number, reason);
}

void LiveEngine::run_pass() {
  const std::string failure = failure_of([&] {
    const auto progress = loop_.pass();
    if (!progress) return;
    for (const serving::RequestProgress& one : *progress) {
      const auto entry = entries_.find(one.request);
      if (entry != entries_.end()) deliver(one.request, entry->second);
    }
  });
  if (!failure.empty()) close(fmt::format("a pass failed: {}", failure), /*closing=*/false);
  metrics_.set_load({.running = loop_.inside() - loop_.waiting(),
                     .waiting = loop_.waiting(),
                     .reserved_bytes = loop_.reserved_bytes(),
                     .passes = loop_.totals().passes});
}

void LiveEngine::deliver(int64_t number, Entry& entry) {
  const std::span<const int32_t> fresh = engine_.tokens(number).subspan(entry.sent);
  if (fresh.empty()) return;
  entry.sent += fresh.size();
  std::vector<TokenScore> scores;
  if (entry.scores) scores = entry.scores->take(fresh);
  entry.stream->push({fresh.begin(), fresh.end()}, std::move(scores));
}

void LiveEngine::left(int64_t number, const serving::Timeline& timeline) {
  auto node = entries_.extract(number);
  KVARENA_ASSERT(!node.empty(), fmt::format("request {} left twice", number));
  Entry& entry = node.mapped();
  Ending ending{.outcome = timeline.outcome, .reason = timeline.reason};
  if (const auto& answer = engine_.answer(number)) {
    deliver(number, entry);
    ending.answer = *answer;
  }
  const bool gone = entry.stream->cancelled();
  const bool cancelled = timeline.outcome == Outcome::cancelled;
  ending.closing = cancelled && entry.closing;
  ending.too_late = cancelled && !entry.closing && !gone && timeline.left_s - timeline.arrival_s > settings_.timeout_s;
  metrics_.add({.model = entry.model,
                .outcome = timeline.outcome,
                .prompt_tokens = entry.prompt_tokens,
                .answer_tokens = std::max<int64_t>(0, std::ssize(timeline.token_s) - entry.forced),
                .cached_tokens = ending.answer.activity.tokens_reused,
                .first_token_s = timeline.token_s.empty()
                                     ? std::nullopt
                                     : std::optional(timeline.token_s.front() - timeline.arrival_s),
                .seconds = timeline.left_s - timeline.arrival_s});
  engine_.forget(number);
  entry.stream->end(std::move(ending));
  const std::lock_guard lock(mutex_);
  --inside_;
}

}  // namespace kvarena::serve
