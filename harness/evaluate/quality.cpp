#include "harness/evaluate/quality.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>

#include "harness/core/failure.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/session.h"
#include "harness/evaluate/against_reference.h"
#include "harness/evaluate/describe.h"
#include "harness/evaluate/token_overlap.h"

namespace kvarena::evaluate {
namespace {

using experiment::SampleOutcome;

/// Keeps everything and takes no part in any pass.
class FullKv final : public Method {
 public:
  [[nodiscard]] HookAccess reach() const override { return HookAccess::nothing; }
};

/// One method on its way through the sample.
struct Candidate {
  const Method* method = nullptr;
  bool retrieves = false;
  std::unique_ptr<SelectionMeter> meter;  // of the session; null unless the request asks
  std::unique_ptr<Session> session;
  std::vector<metrics::StepDivergence> steps;  // grows while the fed prefix is the reference's
  std::string failure;
  double seconds = 0;
};

void run_alone(Transformer& model, Session& session) {
  Session* const one[] = {&session};
  run_together(model, one);
}

Reference run_reference(Transformer& model, const Prefill& prompt, const Request& request) {
  Reference reference;
  static const FullKv full;  // outlives the prompt
  const auto session = start_session(model, prompt, full, options_of_reference(request, reference));
  run_alone(model, *session);
  reference.tokens = session->tokens;
  reference.bytes = prompt.cache.bytes();
  return reference;
}

/// Starts a candidate; `forced` feeds the reference's tokens.
void start(Candidate& candidate, Transformer& model, const Prefill& prompt, const Request& request,
           const Reference& reference, bool forced) {
  SessionOptions options = session_options(request);
  if (forced) options.forced = reference.tokens;
  options.on_logits = [&candidate, &reference, &request, forced](int64_t step, std::span<const float> row) {
    const bool same_prefix =
        forced || step == 0 || (candidate.session != nullptr && reference.begins_with(candidate.session->tokens));
    if (same_prefix) compare_step(candidate.steps, reference, request, step, row);
  };
  candidate.session.reset();  // its passes read the meter
  const bool metered = request.selections || (request.retrievals && candidate.retrieves);
  candidate.meter = metered ? std::make_unique<SelectionMeter>(prompt.cache) : nullptr;
  options.meter = candidate.meter.get();
  candidate.session = start_session(model, prompt, *candidate.method, std::move(options));
}

/// Runs the candidates that have not failed, beside a request over `neighbour` when that is given. Should one throw,
/// each is run again by itself, so that only the one that threw fails.
void run_candidates(std::vector<Candidate*> candidates, Transformer& model, const Prefill& prompt,
                    const Request& request, const Reference& reference, bool forced,
                    const Prefill* neighbour = nullptr) {
  for (Candidate* candidate : candidates) {
    candidate->failure = failure_of([&] { start(*candidate, model, prompt, request, reference, forced); });
  }
  std::erase_if(candidates, [](const Candidate* candidate) { return !candidate->failure.empty(); });
  const auto begin = std::chrono::steady_clock::now();
  try {
    std::vector<Session*> sessions;
    const FullKv full;
    std::unique_ptr<Session> beside;
    if (neighbour != nullptr) {
      beside = start_session(model, *neighbour, full, {.stop = {.max_new_tokens = request.stop.max_new_tokens}});
      sessions.push_back(beside.get());
    }
    for (Candidate* candidate : candidates) sessions.push_back(candidate->session.get());
    run_together(model, sessions);
    for (Candidate* candidate : candidates) candidate->failure = candidate->session->failure;
  } catch (...) {
    for (Candidate* candidate : candidates) {
      if (!forced) candidate->steps.clear();
      candidate->failure = failure_of([&] {
        start(*candidate, model, prompt, request, reference, forced);
        run_alone(model, *candidate->session);
      });
      if (candidate->failure.empty()) candidate->failure = candidate->session->failure;
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (Candidate* candidate : candidates) candidate->seconds += seconds / static_cast<double>(candidates.size());
}

/// Runs every method freely and, from where its answer departs, along the reference.
std::vector<SampleOutcome> evaluate_against(const Reference& reference, Transformer& model, const Prefill& prompt,
                                            const Request& request, std::span<const EvaluatedMethod> methods,
                                            const Prefill* neighbour = nullptr) {
  std::vector<Candidate> candidates(methods.size());
  std::vector<Candidate*> free_running;
  for (size_t i = 0; i < methods.size(); ++i) {
    candidates[i].method = methods[i].method.get();
    candidates[i].retrieves = methods[i].retrieves;
    free_running.push_back(&candidates[i]);
  }
  run_candidates(free_running, model, prompt, request, reference, /*forced=*/false, neighbour);

  std::vector<SampleOutcome> outcomes(methods.size());
  std::vector<std::vector<int32_t>> answers(methods.size());
  std::vector<Candidate*> departed;
  for (size_t i = 0; i < candidates.size(); ++i) {
    Candidate& candidate = candidates[i];
    if (!candidate.failure.empty()) continue;
    outcomes[i] = free_outcome(*candidate.session, request, reference);
    outcomes[i].result.active = methods[i].reference || candidate.session->activity.acted();
    answers[i] = candidate.session->tokens;
    if (candidate.steps.size() < reference.tokens.size()) departed.push_back(&candidate);
  }
  run_candidates(departed, model, prompt, request, reference, /*forced=*/true, neighbour);

  TokenOverlaps overlaps(model, request);
  for (size_t i = 0; i < candidates.size(); ++i) {
    outcomes[i].failure = candidates[i].failure;
    if (!candidates[i].failure.empty()) continue;
    add_divergence(outcomes[i].result, candidates[i].steps);
    add_departure(outcomes[i].result, answers[i], reference);
    // Along the full-KV continuation too: the last session followed it.
    if (candidates[i].meter) {
      add_selections(outcomes[i].result, *candidates[i].meter, static_cast<int64_t>(request.prompt.size()));
    }
    if (request.token_overlaps) overlaps.add_to(outcomes[i].result, methods[i]);
    outcomes[i].result.wall_s = candidates[i].seconds;
  }
  return outcomes;
}

/// The request's prompt with what any of the methods needs of it.
Prefill read_prompt(Transformer& model, const Request& request, std::span<const EvaluatedMethod> methods) {
  Needs needs{.sliding = false};
  for (const EvaluatedMethod& evaluated : methods) needs = combine(needs, evaluated.method->asks());
  Prefill prompt = prefill(model, request.prompt, needs, kPrefillChunk, request.facts);
  prompt.layout = request.layout;
  prompt.memory = reuse_memory(request);
  return prompt;
}

}  // namespace

std::vector<SampleOutcome> evaluate_quality(Transformer& model, const Request& request,
                                            std::span<const EvaluatedMethod> methods, std::optional<Prefill>* context) {
  std::optional<Prefill> own;
  std::optional<Prefill>& prompt = context == nullptr ? own : *context;
  if (!prompt || prompt->tokens != request.prompt) {
    prompt.reset();
    const std::string failure = failure_of([&] { prompt.emplace(read_prompt(model, request, methods)); });
    if (!failure.empty()) {
      // One method's needs cannot be met (a second reading that does not fit the window): halving finds whose.
      if (methods.size() == 1) return {SampleOutcome{.failure = failure}};
      const size_t half = methods.size() / 2;
      std::vector<SampleOutcome> outcomes;
      for (const auto& part : {methods.first(half), methods.subspan(half)}) {
        std::optional<Prefill> of_part;
        std::ranges::move(evaluate_quality(model, request, part, context == nullptr ? nullptr : &of_part),
                          std::back_inserter(outcomes));
      }
      return outcomes;
    }
    if (context != nullptr) prompt->compressed = std::make_shared<CompressedPrompts>();
  }
  return evaluate_against(run_reference(model, *prompt, request), model, *prompt, request, methods);
}

SampleOutcome evaluate_noise_floor(Transformer& model, const Request& request, const EvaluatedMethod& baseline) {
  const Reference first = [&] {  // its cache is gone before the second is made
    const Prefill prompt = prefill(model, request.prompt, {});
    return run_reference(model, prompt, request);
  }();
  Prefill again = prefill(model, request.prompt, baseline.method->asks(), kOtherChunk, request.facts);
  again.layout = request.layout;
  const auto half = std::span(request.prompt).first((request.prompt.size() + 1) / 2);
  const Prefill neighbour = prefill(model, half, {}, kOtherChunk);
  return evaluate_against(first, model, again, request, std::span(&baseline, 1), &neighbour).front();
}

}  // namespace kvarena::evaluate
