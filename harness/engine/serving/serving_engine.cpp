#include "harness/engine/serving/serving_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "harness/core/error.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/session/forwarding_hooks.h"
#include "harness/engine/session/request_bytes.h"

namespace kvarena {
namespace {

// Full caches at once while a request starts: the prompt's, the session's own, and what compression makes of it; a
// verifier drafts on one more.
constexpr int64_t kStartCopies = 3;
constexpr int64_t kVerifierStartCopies = 4;

}  // namespace

/// Keeps a method's exceptions out of a pass that it shares: the pass goes on without it.
class ServingEngine::GuardedHooks final : public ForwardingHooks {
 public:
  using ForwardingHooks::ForwardingHooks;

  void complete(KvCache& cache) override {
    guard([&] { ForwardingHooks::complete(cache); });
  }
  void before_pass(KvCache& cache, std::span<const int32_t> tokens) override {
    guard([&] { ForwardingHooks::before_pass(cache, tokens); });
  }
  void before_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries) override {
    guard([&] { ForwardingHooks::before_attention(layer, cache, queries); });
  }
  [[nodiscard]] kernels::AttentionReader* reader(int64_t layer, const LayerCache& cache,
                                                 const LayerQueries& queries) override {
    kernels::AttentionReader* found = nullptr;
    guard([&] { found = ForwardingHooks::reader(layer, cache, queries); });
    return found;
  }
  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override {
    guard([&] { ForwardingHooks::after_attention(layer, cache, queries, lse); });
  }
  void after_layer(int64_t layer, const float* rows, int64_t count, int64_t hidden_size) override {
    guard([&] { ForwardingHooks::after_layer(layer, rows, count, hidden_size); });
  }
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  template <typename Work>
  void guard(Work&& work) {
    if (!failure_.empty()) return;
    try {
      work();
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  }

  std::string failure_;
};

/// A request under way: its prompt first, then its session.
struct ServingEngine::State {
  std::unique_ptr<PromptRun> prompt;
  std::unique_ptr<Session> session;
};

/// One request's part of the pass under way.
struct ServingEngine::Part {
  int64_t request = 0;
  State* state = nullptr;
  std::optional<GuardedHooks> hooks;
  size_t rows = 0;
  size_t tokens_before = 0;
  std::string failure;
};

ServingEngine::ServingEngine(Transformer& model, std::vector<ServedRequest> requests,
                             std::shared_ptr<const ModelFacts> facts, int64_t reload_bytes)
    : model_(&model),
      requests_(std::move(requests)),
      facts_(std::move(facts)),
      answers_(requests_.size()),
      reload_bytes_(reload_bytes) {
  if (facts_ == nullptr) facts_ = model_facts(model);
  make_schedule();
}

ServingEngine::~ServingEngine() = default;

void ServingEngine::drop(int64_t request) {
  leave_schedule(request);
  states_.erase(request);
}

void ServingEngine::make_schedule() {
  const Method* scheduled = nullptr;
  for (ServedRequest& request : requests_) {
    if (!has_schedule(*request.method)) continue;
    KVARENA_ASSERT(scheduled == nullptr || scheduled == request.method, "one schedule for one method");
    scheduled = request.method;
    request.options.offload_tier = Tier::host;
  }
  if (scheduled == nullptr) return;
  schedule_.emplace(scheduled_settings(*scheduled->verifier(), *facts_->tiers, reload_bytes_));
}

void ServingEngine::join_schedule() {
  while (!joining_.empty()) {
    const int64_t request = joining_.front();
    const int64_t full = full_bytes(static_cast<int64_t>(of(request).prompt.size()) + answer_limit(of(request)));
    if (!schedule_->fits(full, 0)) return;
    schedule_->add(dynamic_cast<VerifySession&>(*states_.at(request)->session), full, 0);
    joining_.pop_front();
  }
}

void ServingEngine::leave_schedule(int64_t request) {
  std::erase(joining_, request);
  const auto state = states_.find(request);
  if (!schedule_ || state == states_.end()) return;
  if (const auto* session = dynamic_cast<VerifySession*>(state->second->session.get())) schedule_->drop(*session);
}

int64_t ServingEngine::full_bytes(int64_t tokens) const { return full_cache_bytes(*model_, tokens); }

int64_t ServingEngine::answer_limit(const ServedRequest& request) const {
  return request.options.forced ? static_cast<int64_t>(request.options.forced->size())
                                : request.options.stop.max_new_tokens;
}

std::string ServingEngine::refusal(const ServedRequest& request) const {
  const auto n = static_cast<int64_t>(request.prompt.size());
  const ModelConfig& config = model_->config();
  if (n == 0) return describe({.place = "prompt", .found = "no tokens", .expected = "at least one"});
  const auto invalid_token =
      std::ranges::find_if(request.prompt, [&](int32_t id) { return id < 0 || id >= config.vocab_size; });
  if (invalid_token != request.prompt.end()) {
    return describe({.place = fmt::format("prompt, token {}", invalid_token - request.prompt.begin()),
                     .found = fmt::format("id {}", *invalid_token),
                     .expected = fmt::format("an id of the vocabulary, 0 to {}", config.vocab_size - 1)});
  }
  const int64_t full = full_bytes(n + answer_limit(request));
  if (has_schedule(*request.method) && full > reload_bytes_) {
    return describe({.place = fmt::format("request of {} prompt tokens", n),
                     .found = fmt::format("a full cache of {} bytes", full),
                     .expected = fmt::format("at most {}, the room for one that comes back", reload_bytes_),
                     .action = "give full caches a larger share of the memory"});
  }
  if (n + answer_limit(request) <= config.max_position) return "";
  return describe({.place = fmt::format("request of {} prompt tokens", n),
                   .found = fmt::format("up to {} tokens with its answer", n + answer_limit(request)),
                   .expected = fmt::format("at most {}, the model's window", config.max_position),
                   .action = "cut the prompt or ask for fewer tokens"});
}

serving::RequestNeeds ServingEngine::needs(int64_t request) const {
  const ServedRequest& served = of(request);
  const auto n = static_cast<int64_t>(served.prompt.size());
  const int64_t copies = served.method->verifier() == nullptr ? kStartCopies : kVerifierStartCopies;
  return {.prompt_tokens = served.method->reuser() != nullptr ? 1 : n - served.begun,
          .bytes = copies * full_bytes(n + answer_limit(served)),
          .refusal = refusal(served),
          .patience_s = served.patience_s};
}

int64_t ServingEngine::bytes_now(int64_t request) const {
  const auto it = states_.find(request);
  if (it == states_.end()) return 0;
  const State& state = *it->second;
  // What comes back for a verification lies in room of its own.
  auto* verifying = dynamic_cast<VerifySession*>(state.session.get());
  const OffloadedCache* offloaded = verifying == nullptr ? nullptr : verifying->offloaded();
  const int64_t elsewhere = offloaded == nullptr ? 0 : offloaded->device_bytes();
  return (state.prompt ? state.prompt->bytes() : 0) + (state.session ? state.session->held_bytes() : 0) - elsewhere;
}

int64_t ServingEngine::bytes_to_end(int64_t request) const {
  const ServedRequest& served = of(request);
  const auto n = static_cast<int64_t>(served.prompt.size());
  const int64_t most = kvarena::bytes_to_end(*model_, *served.method, bytes_now(request), n, answer_limit(served));
  return std::min(most, needs(request).bytes);
}

const std::optional<ServedAnswer>& ServingEngine::answer(int64_t request) const {
  return answers_[static_cast<size_t>(request)];
}

ServingEngine::State& ServingEngine::state_of(int64_t request) {
  std::unique_ptr<State>& state = states_[request];
  if (!state) {
    state = std::make_unique<State>();
    const ServedRequest& served = of(request);
    if (served.method->reuser() != nullptr) return *state;  // reads its prompt when it starts
    state->prompt = served.begin ? std::make_unique<PromptRun>(*model_, served.prompt, facts_, served.begin())
                                 : std::make_unique<PromptRun>(*model_, served.prompt, served.method->needs(), facts_);
  }
  return *state;
}

template <typename Work>
void ServingEngine::guard(Part& part, Work&& work) {
  if (!part.failure.empty()) return;
  try {
    work();
  } catch (const std::exception& error) {
    part.failure = *error.what() == '\0' ? "an exception without a message" : error.what();
  }
}

serving::PassResult ServingEngine::run(const serving::PassPlan& plan) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<Part>> parts;  // hooks have addresses
  std::vector<SequencePass> batch;
  std::vector<VerifySession*> turn;  // of those that a schedule decides on
  if (schedule_) {
    join_schedule();
    const bool others_run = !plan.chunks.empty() || std::ranges::any_of(plan.steps, [&](int64_t request) {
      return !has_schedule(*of(request).method);
    });
    turn = schedule_->next(others_run);
  }
  const auto waits = [&](int64_t request) {
    const auto state = states_.find(request);
    return has_schedule(*of(request).method) && state != states_.end() && state->second->session &&
           std::ranges::find(turn, state->second->session.get()) == turn.end();
  };
  const auto add = [&](int64_t request, int64_t chunk) {
    Part& part = *parts.emplace_back(std::make_unique<Part>(Part{.request = request}));
    guard(part, [&] {
      State& state = state_of(request);
      part.state = &state;
      if (!state.session && of(request).method->reuser() != nullptr) return;
      part.tokens_before = state.session ? state.session->tokens.size() : 0;
      SequencePass pass = state.session ? state.session->next_pass() : state.prompt->next_pass(chunk);
      if (pass.hooks != nullptr) pass.hooks = &part.hooks.emplace(pass.hooks);
      part.rows = pass.logits == LogitsRows::all ? pass.tokens.size() : pass.logits == LogitsRows::last ? 1 : 0;
      batch.push_back(pass);
    });
  };
  for (const int64_t request : plan.steps) {
    if (!waits(request)) add(request, 0);
  }
  for (const auto& chunk : plan.chunks) add(chunk.request, chunk.tokens);

  // The next forward pass, which a method may run when it starts, overwrites the logits.
  std::span<const float> all;
  if (!batch.empty()) all = model_->forward(batch);
  const std::vector<float> logits(all.begin(), all.end());
  const auto vocab = static_cast<size_t>(model_->config().vocab_size);
  size_t at = 0;
  serving::PassResult result;
  for (const auto& part : parts) {
    if (!part->failure.empty()) continue;
    const size_t count = part->rows * vocab;
    if (part->hooks) part->failure = part->hooks->failure();
    guard(*part, [&] { consume(*part, std::span(logits).subspan(at, count)); });
    at += count;
  }
  if (schedule_) {
    schedule_->advance(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  for (const auto& part : parts) result.progress.push_back(settle(*part));
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

void ServingEngine::consume(Part& part, std::span<const float> logits) {
  State& state = *part.state;
  if (state.session) {
    state.session->consume(logits);
    if (!state.session->failure.empty()) throw UserError(state.session->failure);
    return;
  }
  if (!state.prompt) return start(part, state);
  state.prompt->consume(logits);
  if (state.prompt->remaining() == 0) start(part, state);
}

void ServingEngine::start(Part& part, State& state) {
  const ServedRequest& served = of(part.request);
  Prefill prompt = state.prompt ? state.prompt->finish() : unread_prompt(*model_, served.prompt, facts_);
  prompt.layout = served.layout;
  prompt.memory = served.memory;
  state.session = start_session(*model_, prompt, *served.method, served.options);
  state.prompt.reset();
  if (has_schedule(*served.method) && !state.session->finished()) joining_.push_back(part.request);
}

serving::RequestProgress ServingEngine::settle(Part& part) {
  serving::RequestProgress progress{.request = part.request, .failure = part.failure};
  const Session* session = part.state == nullptr ? nullptr : part.state->session.get();
  if (part.failure.empty() && session != nullptr) {
    progress.tokens = static_cast<int64_t>(session->tokens.size() - part.tokens_before);
    progress.finished = session->finished();
  }
  if (progress.finished) {
    answers_[static_cast<size_t>(part.request)] =
        ServedAnswer{.tokens = session->tokens,
                     .finish = session->finish,
                     .activity = session->activity,
                     .resident_bytes = session->resident_bytes,
                     .peak_bytes = std::max(session->peak_bytes, session->resident_bytes)};
  }
  if (progress.finished || !part.failure.empty()) drop(part.request);
  return progress;
}

}  // namespace kvarena
