#include "harness/evaluate/quality.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "harness/core/failure.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/stored/prefill_folder.h"
#include "harness/evaluate/against_reference.h"
#include "harness/evaluate/candidate.h"
#include "harness/evaluate/describe.h"
#include "harness/evaluate/live_conversation.h"
#include "harness/evaluate/prompt_attention.h"
#include "harness/evaluate/token_overlap.h"

namespace kvarena::evaluate {
namespace {

using experiment::SampleOutcome;

Reference run_reference(Transformer& model, const Prefill& prompt, const Request& request) {
  Reference reference;
  static const FullKv full;  // outlives the prompt
  const auto session = start_session(model, prompt, full, options_of_reference(request, reference));
  run_together(model, std::array{session.get()});
  reference.tokens = session->tokens;
  reference.bytes = full_bytes(prompt);
  return reference;
}

/// Runs every method freely and, from where its answer departs, along the reference.
std::vector<SampleOutcome> evaluate_against(const Reference& reference, Transformer& model, const Prefill& prompt,
                                            const Request& request, std::span<const EvaluatedMethod> methods, bool last,
                                            const Prefill* neighbour = nullptr) {
  std::vector<Candidate> candidates(methods.size());
  std::vector<std::vector<metrics::StepDivergence>> steps(methods.size());  // while the fed prefix is the reference's
  std::vector<Candidate*> free_running;
  for (size_t i = 0; i < methods.size(); ++i) {
    Candidate& candidate = candidates[i];
    candidate.method = methods[i].method.get();
    candidate.retrieves = methods[i].retrieves;
    candidate.request = &request;
    candidate.departs_from = &reference.tokens;
    candidate.last = last;
    candidate.on_logits = [&reference, &request, &candidate, &own = steps[i]](int64_t step,
                                                                              std::span<const float> row) {
      const bool same_prefix = candidate.forced || step == 0 ||
                               (candidate.session != nullptr && reference.begins_with(candidate.session->tokens));
      if (same_prefix) compare_step(own, reference, request, step, row);
    };
    free_running.push_back(&candidate);
  }
  run_candidates(model, prompt, free_running, neighbour);

  std::vector<SampleOutcome> outcomes(methods.size());
  std::vector<std::vector<int32_t>> answers(methods.size());
  std::vector<Candidate*> departed;
  for (size_t i = 0; i < candidates.size(); ++i) {
    Candidate& candidate = candidates[i];
    if (!candidate.failure.empty()) continue;
    outcomes[i] = free_outcome(*candidate.session, request, reference);
    outcomes[i].result.active = methods[i].reference || candidate.session->activity.acted();
    answers[i] = candidate.session->tokens;
    if (steps[i].size() >= reference.tokens.size()) continue;
    candidate.forced = reference.tokens;
    departed.push_back(&candidate);
  }
  run_candidates(model, prompt, departed, neighbour);

  TokenOverlaps overlaps(model, request);
  for (size_t i = 0; i < candidates.size(); ++i) {
    outcomes[i].failure = candidates[i].failure;
    if (!candidates[i].failure.empty()) continue;
    add_divergence(outcomes[i].result, steps[i]);
    add_departure(outcomes[i].result, answers[i], reference);
    // Along the full-KV continuation too: the last session followed it.
    if (candidates[i].meter) {
      add_selections(outcomes[i].result, *candidates[i].meter, static_cast<int64_t>(request.prompt.size()));
    }
    if (request.token_overlaps) overlaps.add_to(outcomes[i].result, methods[i]);
    if (request.prompt_attention) add_prompt_attention(outcomes[i].result, model, request, *methods[i].method);
    outcomes[i].result.wall_s = candidates[i].seconds;
  }
  return outcomes;
}

/// Needs of all methods together.
Needs needs_of(std::span<const EvaluatedMethod> methods) {
  Needs needs{.sliding = false};
  for (const EvaluatedMethod& evaluated : methods) needs = combine(needs, evaluated.method->asks());
  return needs;
}

}  // namespace

std::vector<SampleOutcome> evaluate_quality(Transformer& model, const Request& request,
                                            std::span<const EvaluatedMethod> methods, OpenPrompt* context,
                                            const PrefillFolder* prefills) {
  std::optional<Prefill> own;
  std::optional<Prefill>& prompt = context == nullptr ? own : context->prompt;
  if (!prompt || prompt->tokens != request.prompt) {
    prompt.reset();
    const std::string failure =
        failure_of([&] { prompt.emplace(read_prompt(model, request, needs_of(methods), prefills)); });
    if (!failure.empty()) {
      // One method's needs cannot be met (a second reading that does not fit the window): halving finds whose.
      if (methods.size() == 1) return {SampleOutcome{.failure = failure}};
      const size_t half = methods.size() / 2;
      std::vector<SampleOutcome> outcomes;
      for (const auto& part : {methods.first(half), methods.subspan(half)}) {
        OpenPrompt of_part{.prompt = {}, .last = true};
        std::ranges::move(evaluate_quality(model, request, part, context == nullptr ? nullptr : &of_part, prefills),
                          std::back_inserter(outcomes));
      }
      return outcomes;
    }
    if (context != nullptr || is_live(request)) prompt->compressed = std::make_shared<CompressedPrompts>();
  }
  if (is_live(request)) {
    return evaluate_live(converse_with_full(model, *prompt, request), model, *prompt, request, methods);
  }
  const bool last = context != nullptr && context->last;
  return evaluate_against(run_reference(model, *prompt, request), model, *prompt, request, methods, last);
}

SampleOutcome evaluate_noise_floor(Transformer& model, const Request& request, const EvaluatedMethod& baseline) {
  const auto on_first = [&](const auto& answer) {  // whose cache is gone before the second is made
    return answer(model, prefill(model, request.prompt, {}), request);
  };
  Prefill again = prefill(model, request.prompt, baseline.method->asks(), kOtherChunk, request.facts);
  again.layout = request.layout;
  const auto half = std::span(request.prompt).first((request.prompt.size() + 1) / 2);
  const Prefill neighbour = prefill(model, half, {}, kOtherChunk);
  if (is_live(request)) {
    return evaluate_live(on_first(converse_with_full), model, again, request, std::span(&baseline, 1), &neighbour)
        .front();
  }
  return evaluate_against(on_first(run_reference), model, again, request, std::span(&baseline, 1), /*last=*/false,
                          &neighbour)
      .front();
}

}  // namespace kvarena::evaluate
