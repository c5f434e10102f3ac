#pragma once
// Texts that a model scores token by token instead of answering.

#include <span>
#include <vector>

#include "harness/evaluate/evaluated_method.h"
#include "harness/evaluate/request.h"

namespace kvarena::evaluate {

/// True for samples whose text itself is scored (`"score_prompt": true` in extras).
[[nodiscard]] bool is_scored_text(const datasets::Sample& sample);

/// Scores every method on a text. The first half (or all but the last `scored_tokens` of the sample's extras) is the
/// prompt, which a method compresses; the rest is fed token by token, and the method is scored by the probability that
/// it gives to each, and by the distance of its distribution from the full cache's. Values: perplexity (a token),
/// perplexity_word, kl_nats, kl_nats_sum, top1_agreement, and the bytes of evaluate_quality; series nll_nats and
/// kl_nats. One prefill in chunks of `chunk` serves all methods; each has the rest read once more on the full cache.
/// Throws UserError for a text of fewer than two tokens.
[[nodiscard]] std::vector<experiment::SampleOutcome> evaluate_perplexity(Transformer& model, const Request& request,
                                                                         std::span<const EvaluatedMethod> methods,
                                                                         int64_t chunk);

}  // namespace kvarena::evaluate
