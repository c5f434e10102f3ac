#include "harness/engine/serving/serving_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/request_bytes.h"

namespace kvarena {
namespace {

int64_t prompt_tokens(const ServedRequest& request) {
  return static_cast<int64_t>(request.prompt.size() + request.options.question.size());
}

}  // namespace

/// A request under way: its prompt first, then its session.
struct ServingEngine::State final : PassMember {
  std::optional<int64_t> load;  // of the schedule, until it has come
  std::unique_ptr<PromptRun> prompt;
  std::shared_ptr<ReuseMemory> memory;  // of a method that reuses entries
  std::unique_ptr<Priming> priming;     // likewise, first
  std::unique_ptr<ReuseRun> reused;     // then, in place of `prompt`
  std::future<BroughtPrompt> coming;    // of a prompt that begins with a cache or reuses entries, until it is there
  double asked_s = 0;                   // on the run's clock
  bool steps_back = false;              // reused entries have just been asked for
  std::optional<BroughtPrompt> brought;
  std::unique_ptr<Session> session;
  PassMember* fed = nullptr;  // of these, in the pass under way
  size_t tokens_before = 0;   // the pass under way
  std::string failure;

  /// Whoever brings reused entries is asked to end, and waited for.
  ~State() override {
    if (reused) reused->stop();
  }

  /// Looks whether its cache has come.
  void look() {
    if (brought || !coming.valid() || coming.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    failure = failure_of([&] { brought = coming.get(); });
  }
  /// Whether it waits for a cache that is not there at `now`.
  [[nodiscard]] bool waits(double now) const {
    if (reused && reused->reads_itself()) return false;
    return brought ? arrival_s() > now : load || coming.valid();
  }
  [[nodiscard]] double arrival_s() const { return asked_s + brought->seconds; }

  [[nodiscard]] bool primes() const { return priming && !priming->done(); }
  /// Whether it computes by itself what it computes next.
  [[nodiscard]] bool alone() const {
    return !session && !primes() && reused && reused->narrows() && !reused->reads_itself();
  }
  [[nodiscard]] SequencePass next_pass() override {
    fed = session    ? static_cast<PassMember*>(session.get())
          : primes() ? static_cast<PassMember*>(priming.get())
          : reused   ? static_cast<PassMember*>(reused.get())
                     : prompt.get();
    return fed->next_pass();
  }
  void consume(std::span<const float> logits) override { fed->consume(logits); }
  void failed(const std::string& reason) override {
    failure = reason;
    if (session) session->failed(reason);
  }
  /// Tokens of the prompt that have not been through the model.
  [[nodiscard]] int64_t prompt_left(int64_t all) const {
    if (priming && !reused) return all;
    return prompt ? prompt->remaining() : reused ? reused->remaining() : 0;
  }
  void set_chunk(int64_t tokens) const {
    if (priming) priming->set_chunk(tokens);
    if (reused) reused->set_chunk(tokens);
    if (prompt) prompt->set_chunk(tokens);
  }
};

ServingEngine::ServingEngine(Transformer& model, std::vector<ServedRequest> requests,
                             std::shared_ptr<const ModelFacts> facts)
    : model_(&model), facts_(std::move(facts)) {
  if (facts_ == nullptr) facts_ = model_facts(model);
  for (size_t i = 0; i < requests.size(); ++i) known_[static_cast<int64_t>(i)] = {.request = std::move(requests[i])};
}

ServingEngine::~ServingEngine() = default;

void ServingEngine::add(int64_t request, ServedRequest served) {
  KVARENA_ASSERT(!has_schedule(*served.method), "a schedule is made for requests that are known from the beginning");
  const bool added = known_.try_emplace(request, Known{.request = std::move(served), .answer = {}}).second;
  KVARENA_ASSERT(added, fmt::format("a second request {}", request));
}

void ServingEngine::forget(int64_t request) {
  KVARENA_ASSERT(!states_.contains(request), fmt::format("request {} is under way", request));
  known_.erase(request);
}

std::span<const int32_t> ServingEngine::tokens(int64_t request) const {
  if (const auto& answered = answer(request)) return answered->tokens;
  const auto state = states_.find(request);
  if (state == states_.end() || !state->second->session) return {};
  return state->second->session->tokens;
}

void ServingEngine::drop(int64_t request) {
  leave_schedule(request);
  states_.erase(request);
}

void ServingEngine::share(const std::shared_ptr<serving::Admission>& memory) {
  const Method* scheduled = nullptr;
  for (const auto& [number, known] : known_) {
    const Method* method = known.request.method;
    if (!has_schedule(*method)) continue;
    KVARENA_ASSERT(scheduled == nullptr || scheduled == method, "one schedule for one method");
    scheduled = method;
  }
  if (scheduled == nullptr) return;
  const ScheduledSettings settings = scheduled_settings(*scheduled, *model_, facts_->tiers);
  schedule_.emplace(settings, memory);
  for (auto& [number, known] : known_) {
    if (known.request.method == scheduled) known.request.options.offload_tier = settings.tier;
  }
}

void ServingEngine::join_schedule() {
  std::erase_if(joining_, [&](int64_t request) {
    const int64_t full = full_bytes_to_end(request);
    if (!schedule_->fits(full, 0)) return false;
    schedule_->add(dynamic_cast<VerifySession&>(*states_.at(request)->session), full, 0);
    return true;
  });
}

std::string ServingEngine::no_room(int64_t request) const {
  return describe({.place = fmt::format("request of {} prompt tokens", prompt_tokens(of(request))),
                   .found = fmt::format("up to {} bytes that it drafts with and {} of its full cache",
                                        bytes_to_end(request), full_bytes_to_end(request)),
                   .expected = "room for both in the budget of all requests together",
                   .action = "raise cache_mib or draft on less"});
}

void ServingEngine::leave_schedule(int64_t request) {
  std::erase(joining_, request);
  const auto state = states_.find(request);
  if (!schedule_ || state == states_.end()) return;
  if (const auto& load = state->second->load) schedule_->loaded(*load);
  if (const auto* session = dynamic_cast<VerifySession*>(state->second->session.get())) schedule_->drop(*session);
}

int64_t ServingEngine::full_bytes_to_end(int64_t request) const {
  return full_bytes(prompt_tokens(of(request)) + of(request).options.most_tokens());
}

int64_t ServingEngine::full_bytes(int64_t tokens) const { return full_cache_bytes(*model_, tokens); }

std::string ServingEngine::refusal(const ServedRequest& request) const {
  const int64_t n = prompt_tokens(request);
  const ModelConfig& config = model_->config();
  if (request.prompt.empty()) return describe({.place = "prompt", .found = "no tokens", .expected = "at least one"});
  const auto invalid_token =
      std::ranges::find_if(request.prompt, [&](int32_t id) { return id < 0 || id >= config.vocab_size; });
  if (invalid_token != request.prompt.end()) {
    return describe({.place = fmt::format("prompt, token {}", invalid_token - request.prompt.begin()),
                     .found = fmt::format("id {}", *invalid_token),
                     .expected = fmt::format("an id of the vocabulary, 0 to {}", config.vocab_size - 1)});
  }
  if (n + request.options.most_tokens() <= config.max_position) return "";
  return describe({.place = fmt::format("request of {} prompt tokens", n),
                   .found = fmt::format("up to {} tokens with its answer", n + request.options.most_tokens()),
                   .expected = fmt::format("at most {}, the model's window", config.max_position),
                   .action = "cut the prompt or ask for fewer tokens"});
}

bool ServingEngine::may_have(int64_t bytes) {
  if (!schedule_) return true;
  join_schedule();
  return schedule_->may_start(/*full_bytes=*/0, bytes);
}

serving::RequestNeeds ServingEngine::needs(int64_t request) const {
  const ServedRequest& served = of(request);
  const auto n = static_cast<int64_t>(served.prompt.size());  // the question is read when the session starts
  const int64_t start = bytes_to_start(*model_, *served.method, prompt_tokens(served), served.options.most_tokens());
  const int64_t coming = served.coming_bytes ? 2 * full_bytes(n) : 0;  // bytes, and the cache that is made of them
  return {.prompt_tokens = n - served.begun,
          .bytes = std::max(start, coming),
          .refusal = refusal(served),
          .patience_s = served.patience_s};
}

int64_t ServingEngine::bytes_now(int64_t request) const {
  const auto it = states_.find(request);
  if (it == states_.end()) return 0;
  const State& state = *it->second;
  // A full cache that comes back for a verification is there in turn with others.
  auto* verifying = dynamic_cast<VerifySession*>(state.session.get());
  const OffloadedCache* offloaded = verifying == nullptr ? nullptr : verifying->offloaded();
  const int64_t elsewhere = offloaded == nullptr ? 0 : offloaded->device_bytes();
  const auto& coming = of(request).coming_bytes;
  const bool comes = coming && !state.session && (state.coming.valid() || state.brought);
  const int64_t reading = state.prompt    ? state.prompt->bytes()
                          : state.reused  ? state.reused->bytes()
                          : state.priming ? state.priming->bytes()
                          : comes         ? coming()
                                          : 0;
  return reading + (state.session ? state.session->held_bytes() : 0) - elsewhere;
}

int64_t ServingEngine::bytes_to_end(int64_t request) const {
  const ServedRequest& served = of(request);
  return kvarena::bytes_to_end(*model_, *served.method, *states_.at(request)->session, bytes_now(request),
                               prompt_tokens(served), served.options.most_tokens());
}

ServingEngine::State& ServingEngine::state_of(int64_t request) {
  std::unique_ptr<State>& state = states_[request];
  if (state) return *state;
  state = std::make_unique<State>();
  const ServedRequest& served = of(request);
  state->failure = failure_of([&] {
    if (const Reuser* reuser = served.method->reuser()) {
      state->memory = served.memory ? served.memory : std::make_shared<ReuseMemory>();
      if (!state->memory->facts) state->memory->facts = facts_;
      state->priming = std::make_unique<Priming>(*model_, served.prompt, served.layout, *reuser, *state->memory);
    } else if (served.begin && schedule_ && served.begin_bytes > 0) {
      state->load = schedule_->add_load(served.begin_bytes);
    } else if (served.begin) {
      state->coming = served.begin();
    } else {
      state->prompt = std::make_unique<PromptRun>(*model_, served.prompt, served.method->asks(), facts_);
      if (served.on_prompt_logits) state->prompt->on_logits(served.on_prompt_logits);
    }
  });
  return *state;
}

void ServingEngine::begin_reuse(int64_t request, State& state) {
  const ServedRequest& served = of(request);
  state.reused =
      std::make_unique<ReuseRun>(*model_, served.prompt, served.layout, *served.method->reuser(), *state.memory);
  const auto asked = std::chrono::steady_clock::now();
  state.coming = std::async(std::launch::async, [run = state.reused.get(), asked] {
    run->begin(ReuseRun::Beginning::beside_passes);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - asked;
    return BroughtPrompt{.cache = {}, .seconds = took.count()};
  });
}

/// The state of a request whose prompt is in the pass at `now`. Null while it waits for its cache.
ServingEngine::State* ServingEngine::prompt_state(int64_t request, double now) {
  const bool asked = states_.contains(request);
  State& state = state_of(request);
  const bool primed = state.failure.empty() && state.priming && state.priming->done() && !state.reused;
  if (!asked || primed) state.asked_s = now;
  if (primed) state.failure = failure_of([&] { begin_reuse(request, state); });
  state.steps_back = state.steps_back || primed;
  state.look();
  if (state.failure.empty() && state.waits(now)) return nullptr;
  if (state.failure.empty() && state.priming && state.brought && !state.reused->reads_itself()) {
    state.reused->arrange();
    state.priming.reset();
    state.memory.reset();
  }
  if (!state.brought || state.prompt || state.reused || state.session) return &state;
  if (state.load) schedule_->loaded(*std::exchange(state.load, std::nullopt));
  const ServedRequest& served = of(request);
  state.failure = failure_of([&] {
    if (served.resume) {
      state.session = served.resume(state.brought->cache());
      joining_.push_back(request);
    } else {
      state.prompt = std::make_unique<PromptRun>(*model_, served.prompt, facts_, state.brought->cache());
    }
  });
  return &state;
}

void ServingEngine::begin_loads(double now) {
  for (const int64_t load : schedule_->loads()) {
    const auto found = std::ranges::find_if(states_, [&](const auto& each) { return each.second->load == load; });
    State& state = *found->second;
    state.asked_s = now;
    state.failure = failure_of([&] { state.coming = of(found->first).begin(); });
  }
}

bool ServingEngine::only_loads(std::span<const int64_t> waiting) const {
  if (!schedule_) return true;
  const auto under_way = [&](int64_t request) {
    const State& state = *states_.at(request);
    return state.coming.valid() || state.brought;
  };
  return schedule_->running() == 0 && std::ranges::any_of(waiting, under_way);
}

std::vector<int64_t> ServingEngine::requests_of(const serving::PassPlan& plan, double now,
                                                serving::PassResult& result) {
  std::vector<int64_t> prompts;
  int64_t room = plan.room.tokens;
  for (const auto& chunk : plan.chunks) {
    State* const state = prompt_state(chunk.request, now);
    if (state == nullptr) result.waiting.push_back(chunk.request);
    const bool resumed = state != nullptr && state->failure.empty() && of(chunk.request).resume;
    if (resumed) result.progress.push_back({.request = chunk.request, .begun = true});
    if (state == nullptr || resumed) continue;  // it waits for its turn
    prompts.push_back(chunk.request);
    state->set_chunk(chunk.tokens + (state->reused ? std::exchange(room, 0) : 0));
  }
  std::vector<VerifySession*> turn;  // the sessions that a schedule decides on
  if (schedule_) {
    join_schedule();
    const bool others_run = !prompts.empty() || std::ranges::any_of(plan.steps, [&](int64_t request) {
      return !has_schedule(*of(request).method);
    });
    turn = schedule_->next(others_run);
    result.in_turn_bytes = schedule_->full_bytes_claimed();
    begin_loads(now);
  }
  std::vector<int64_t> requests;
  for (const int64_t request : plan.steps) {
    const auto state = states_.find(request);
    const bool waits = has_schedule(*of(request).method) && state != states_.end() && state->second->session &&
                       std::ranges::find(turn, state->second->session.get()) == turn.end();
    if (!waits) requests.push_back(request);
  }
  requests.insert(requests.end(), prompts.begin(), prompts.end());
  return requests;
}

/// Looks often rather than sleeping until one comes: the time that counts is what the one who brings it has measured.
double ServingEngine::first_arrival(std::span<const int64_t> waiting, double now) {
  constexpr double moment_s = 5e-3;
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    double first = std::numeric_limits<double>::infinity();
    for (const int64_t request : waiting) {
      State& state = state_of(request);
      state.look();
      if (!state.failure.empty()) return state.asked_s;
      if (state.brought) first = std::min(first, state.arrival_s());
    }
    if (std::isfinite(first)) return first;
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (waited.count() > moment_s) return now + waited.count();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

serving::PassResult ServingEngine::run(const serving::PassPlan& plan, std::span<PassMember* const> beside) {
  serving::PassResult result;
  double now = plan.at_s;
  auto begin = std::chrono::steady_clock::now();
  std::vector<int64_t> requests = requests_of(plan, now, result);
  if (requests.empty() && beside.empty() && !result.waiting.empty() && only_loads(result.waiting)) {
    now = std::max(now, first_arrival(result.waiting, now));
    begin = std::chrono::steady_clock::now();
    if (!schedule_) {  // which a second look would ask twice
      result.waiting.clear();
      requests = requests_of(plan, now, result);
    }
  }
  const bool nobody = requests.empty() && beside.empty() && result.waiting.empty() && result.progress.empty();
  if (nobody && !joining_.empty() && schedule_->running() == 0) {  // it never fits
    requests.push_back(joining_.front());
    state_of(requests.back()).failure = no_room(requests.back());
  }
  const double waited = now - plan.at_s;
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  std::vector<PassMember*> fed;
  std::vector<State*> by_themselves;
  for (const int64_t request : requests) {
    State& state = state_of(request);
    state.tokens_before = state.session ? state.session->tokens.size() : 0;
    if (!state.failure.empty()) continue;
    if (state.alone()) {
      by_themselves.push_back(&state);
    } else {
      fed.push_back(&state);
    }
  }
  fed.insert(fed.end(), beside.begin(), beside.end());
  run_pass(*model_, fed);
  for (State* state : by_themselves) state->failure = failure_of([&] { state->reused->compute(); });
  for (const int64_t request : requests) {
    State& state = state_of(request);
    const bool read = !state.session && state.prompt_left(std::ssize(of(request).prompt)) == 0;
    if (read && state.failure.empty()) state.failure = failure_of([&] { start(request, state); });
  }
  if (schedule_) schedule_->advance(seconds());
  for (const int64_t request : requests) result.progress.push_back(settle(request));
  for (const int64_t request : result.waiting) {
    // It asks for no more than a token, so that prompts behind it go on meanwhile.
    if (std::exchange(state_of(request).steps_back, false))
      result.progress.push_back({.request = request, .prompt_left = 1});
  }
  result.seconds = waited + seconds();
  return result;
}

void ServingEngine::start(int64_t request, State& state) {
  const ServedRequest& served = of(request);
  {
    Prefill prompt = state.prompt ? state.prompt->finish() : unread_prompt(*model_, served.prompt, facts_);
    prompt.layout = served.layout;
    prompt.memory = served.memory;
    if (outlives_full_cache(*served.method)) compress_in_place(prompt, *served.method, /*sessions=*/1);
    if (state.reused) {
      Activity activity;
      PromptState reused = reused_state(state.reused->finish(), activity);
      hand_over(prompt, *served.method, std::move(reused), activity, /*sessions=*/1);
    }
    state.session = start_session(*model_, prompt, *served.method, served.options);
  }  // the session goes on alone with what it shared
  state.prompt.reset();
  state.reused.reset();
  run_to_first_token(*model_, *state.session);
  if (!state.session->failure.empty()) throw UserError(state.session->failure);
  if (has_schedule(*served.method) && !state.session->finished()) joining_.push_back(request);
}

serving::RequestProgress ServingEngine::settle(int64_t request) {
  const State& state = state_of(request);
  serving::RequestProgress progress{.request = request, .failure = state.failure};
  const Session* session = state.session.get();
  if (state.failure.empty() && session != nullptr) {
    progress.tokens = static_cast<int64_t>(session->tokens.size() - state.tokens_before);
    progress.finished = session->finished();
  }
  if (of(request).method->reuser() != nullptr) progress.prompt_left = state.prompt_left(std::ssize(of(request).prompt));
  if (progress.finished) {
    known_.at(request).answer = ServedAnswer{.tokens = session->tokens,
                                             .finish = session->finish,
                                             .activity = session->activity,
                                             .resident_bytes = session->resident_bytes,
                                             .peak_bytes = std::max(session->peak_bytes, session->resident_bytes)};
  }
  if (progress.finished || !progress.failure.empty()) drop(request);
  return progress;
}

}  // namespace kvarena
