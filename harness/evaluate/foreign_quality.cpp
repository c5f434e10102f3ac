#include "harness/evaluate/foreign_quality.h"

#include <chrono>
#include <optional>

#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/evaluate/describe.h"

namespace kvarena::evaluate {

using experiment::SampleOutcome;

SequencePass ForeignSession::next_pass() {
  KVARENA_ASSERT(false, "another engine's session in a pass of ours");
  return {};
}

void ForeignSession::consume(std::span<const float> /*logits*/) {
  KVARENA_ASSERT(false, "another engine's session in a pass of ours");
}

void answer_elsewhere(TransformersEngine& engine, const Request& request, ForeignRequest asked, ForeignRun run,
                      ForeignAnswer& answer) {
  const auto options_with = [&](LogitsSink sink) {
    SessionOptions options = session_options(request);
    options.question.clear();  // the engine feeds it
    options.on_logits = std::move(sink);
    return options;
  };
  Emitter free(options_with(std::move(run.on_logits)), request.asked_tokens());
  SessionOptions options = options_with(std::move(run.on_forced_logits));
  options.forced = run.forced;
  Emitter forced(std::move(options), request.asked_tokens());
  ForeignSession along;
  asked.prompt = request.prompt;
  asked.question = request.question;
  ForeignSession* current = &answer.session;
  answer.outcome = engine.answer(asked, [&](std::span<const float> row) -> std::optional<int32_t> {
    const bool first = current == &answer.session;
    const int32_t token = (first ? free : forced).emit(*current, row);
    if (!current->finished()) return token;
    if (!first || run.forced.empty() || (run.wants_all && !run.wants_all())) return std::nullopt;
    current = &along;
    return TransformersEngine::kAgain;
  });
  answer.session.resident_bytes = answer.outcome.bytes;
  answer.session.activity.entries_dropped = answer.outcome.dropped;
}

Reference reference_elsewhere(TransformersEngine& engine, const Request& request) {
  Reference reference;
  ForeignRun run{.on_logits = options_of_reference(request, reference).on_logits,
                 .forced = {},
                 .on_forced_logits = {},
                 .wants_all = {}};
  ForeignAnswer answer;
  answer_elsewhere(engine, request, {}, std::move(run), answer);
  reference.tokens = answer.session.tokens;
  reference.bytes = answer.outcome.bytes;
  return reference;
}

namespace {

SampleOutcome evaluate_one(TransformersEngine& engine, const Request& request, const ForeignMethod& method,
                           int64_t chunk, const Reference& reference) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<metrics::StepDivergence> steps;
  ForeignAnswer answer;
  const auto compare = [&](int64_t step, std::span<const float> row) {
    compare_step(steps, reference, request, step, row);
  };
  ForeignRun run{.on_logits =
                     [&](int64_t step, std::span<const float> row) {
                       if (reference.begins_with(answer.session.tokens)) compare(step, row);
                     },
                 .forced = reference.tokens,
                 .on_forced_logits = compare,
                 .wants_all = [&] { return steps.size() < reference.tokens.size(); }};
  ForeignRequest asked;
  asked.method = method.spec;
  asked.chunk = chunk;
  answer_elsewhere(engine, request, std::move(asked), std::move(run), answer);

  SampleOutcome outcome = free_outcome(answer.session, request, reference);
  outcome.result.active = method.reference || answer.outcome.acted;
  add_divergence(outcome.result, steps);
  add_departure(outcome.result, answer.session.tokens, reference);
  outcome.result.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

}  // namespace

std::vector<SampleOutcome> evaluate_quality_elsewhere(TransformersEngine& engine, const Request& request,
                                                      std::span<const ForeignMethod> methods, int64_t chunk) {
  const Reference reference = reference_elsewhere(engine, request);
  std::vector<SampleOutcome> outcomes;
  for (const ForeignMethod& method : methods) {
    SampleOutcome& outcome = outcomes.emplace_back();
    const std::string failure = failure_of([&] { outcome = evaluate_one(engine, request, method, chunk, reference); });
    if (!failure.empty()) outcome = {.failure = failure};
  }
  return outcomes;
}

}  // namespace kvarena::evaluate
