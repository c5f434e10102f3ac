#include "harness/evaluate/perplexity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/evaluate/candidate.h"
#include "harness/evaluate/describe.h"
#include "harness/evaluate/stored_values.h"
#include "harness/model/log_sum_exp.h"
#include "metrics/distribution/divergence.h"
#include "metrics/distribution/perplexity.h"

namespace kvarena::evaluate {
namespace {

using experiment::SampleOutcome;
using nlohmann::json;

/// The full cache's logits [vocab_size] of every step of the text, computed a few steps at a time: those of a long text
/// would take gigabytes.
class FullReading {
 public:
  FullReading(Transformer& model, const Prefill& prompt, std::span<const int32_t> rest)
      : model_(&model), cache_(prompt.cache.clone()), rest_(rest), rows_(prompt.logits) {}

  /// Steps are asked for in order; step 0 is the token after the prompt. Good until the next call.
  std::span<const float> logits(int64_t step) {
    const auto vocab = static_cast<size_t>(model_->config().vocab_size);
    if (step >= begin_ + static_cast<int64_t>(rows_.size() / vocab)) read_from(step);
    return std::span(rows_).subspan(static_cast<size_t>(step - begin_) * vocab, vocab);
  }

 private:
  static constexpr size_t kSteps = 64;

  void read_from(int64_t step) {
    const auto fed = static_cast<size_t>(step) - 1;  // this token's logits are those of `step`
    const SequencePass pass{.tokens = rest_.subspan(fed, std::min(kSteps, rest_.size() - fed)),
                            .cache = &cache_,
                            .hooks = nullptr,
                            .logits = LogitsRows::all};
    const std::span<const float> rows = model_->forward({&pass, 1});
    rows_.assign(rows.begin(), rows.end());
    begin_ = step;
  }

  Transformer* model_;
  KvCache cache_;
  std::span<const int32_t> rest_;
  std::vector<float> rows_;
  int64_t begin_ = 0;  // step of the first row
};

/// Feeds one method the part of the text that is scored.
SampleOutcome score_text(Transformer& model, const Prefill& prompt, const std::vector<int32_t>& rest,
                         const Request& request, const EvaluatedMethod& evaluated) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<double> nll;
  std::vector<metrics::StepDivergence> steps;
  std::vector<std::vector<float>> rows;  // of one pass of the method
  SessionOptions options{.stop = {.max_new_tokens = static_cast<int64_t>(rest.size())}};
  options.forced = rest;
  options.tokenizer = request.tokenizer;
  options.on_logits = [&](int64_t step, std::span<const float> row) {
    if (step != static_cast<int64_t>(nll.size())) return;
    nll.push_back(log_sum_exp(row) - row[static_cast<size_t>(rest[static_cast<size_t>(step)])]);
    rows.emplace_back(row.begin(), row.end());
  };
  const auto meter = request.selections ? std::make_unique<SelectionMeter>(prompt.cache) : nullptr;
  options.meter = meter.get();
  const auto session = start_session(model, prompt, *evaluated.method, std::move(options));
  FullReading full(model, prompt, rest);
  const auto compare = [&] {  // after the pass: the full cache's own passes use the model's buffers
    for (const std::vector<float>& row : rows) {
      const auto step = static_cast<int64_t>(steps.size());
      steps.push_back(
          metrics::step_divergence(full.logits(step), row, rest[steps.size()], kl_temperature(request.sampling)));
    }
    rows.clear();
  };
  compare();  // the first token's logits come with the session
  Session* const one[] = {session.get()};
  run_together(model, one, compare);
  if (!session->failure.empty()) throw UserError(session->failure);
  KVARENA_ASSERT(nll.size() == rest.size(), "a forced token without logits");

  SampleOutcome outcome;
  results::SampleResult& result = outcome.result;
  describe_prompt(result, request);
  result.output_tokens = static_cast<int64_t>(rest.size());
  result.finish_reason = to_string(session->finish);
  result.active = evaluated.reference || session->activity.acted();
  add_activity(result, session->activity);
  // Words of the whole text, of which the tokens that are scored are a known share.
  const double words = json::parse(request.sample->extras).value("words", 0.0) * static_cast<double>(rest.size()) /
                       static_cast<double>(request.prompt.size());
  const metrics::Perplexity total = metrics::perplexity(nll, std::llround(words));
  add(result, metrics::kPerplexity, total.token_perplexity);
  add(result, metrics::kPerplexityWord, total.word_perplexity);
  add_series(result, metrics::kNllNats, {nll.begin(), nll.end()});
  add_divergence(result, steps);
  if (meter) add_selections(result, *meter, result.prompt_tokens);
  add_bytes(result, *session, full_bytes(prompt));
  add_traffic(result, *session, request);
  result.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

}  // namespace

bool is_scored_text(const datasets::Sample& sample) {
  const json extras = json::parse(sample.extras);
  return extras.contains("score_prompt") && extras["score_prompt"] == true;
}

std::vector<SampleOutcome> evaluate_perplexity(Transformer& model, const Request& request,
                                               std::span<const EvaluatedMethod> methods, int64_t chunk) {
  const std::span<const int32_t> text = request.prompt;
  if (text.size() < 2) {
    fail({.place = request.sample->id, .found = "a text of fewer than two tokens", .expected = "a text to score"});
  }
  const json extras = json::parse(request.sample->extras);
  const auto scored = extras.value("scored_tokens", text.size() / 2);
  const size_t context = text.size() - std::clamp<size_t>(scored, 1, text.size() - 1);
  Needs needs{.sliding = false};
  for (const EvaluatedMethod& evaluated : methods) needs = combine(needs, evaluated.method->asks());
  const Prefill prompt = prefill(model, text.first(context), needs, chunk, request.facts);
  const std::vector<int32_t> rest(text.begin() + static_cast<std::ptrdiff_t>(context), text.end());
  return outcomes_of(
      methods, [&](const EvaluatedMethod& evaluated) { return score_text(model, prompt, rest, request, evaluated); });
}

}  // namespace kvarena::evaluate
