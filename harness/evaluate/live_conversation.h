#pragma once
// A sample whose messages follow from the answers: each method's conversation goes its own way.

#include <span>
#include <string>
#include <vector>

#include "harness/evaluate/against_reference.h"
#include "harness/evaluate/evaluated_method.h"
#include "harness/evaluate/request.h"

namespace kvarena::evaluate {

/// Logits of a step of an answer.
struct LiveStep {
  int64_t place = 0;  // in LiveReference::forced
  int32_t token = 0;  // that followed them
  std::vector<float> logits;
};

/// Full KV's conversation, in its first context.
struct LiveReference {
  Reference answers;            // tokens of the answers in all contexts, without logits
  std::string record;           // LiveReply::record at its end
  std::vector<int32_t> forced;  // what follows the first request: its answers, and the messages between them
  std::vector<LiveStep> steps;  // ascending places
};

/// Whether messages follow from the request's answer.
[[nodiscard]] inline bool is_live(const Request& request) { return request.sample->live.reply != nullptr; }

/// Converses with full KV, from the prompt of the first request. `request.continued` must be set here and below.
[[nodiscard]] LiveReference converse_with_full(Transformer& model, const Prefill& prompt, const Request& request);

/// Each method converses by itself: an answer is asked for behind what was said so far, on a copy of what the method
/// made of the prompt, all of it fed as a question that follows is. A context that begins anew is a prompt of that
/// method's conversation alone. Then it is fed full KV's conversation in the first context, and KL is known at every
/// step of an answer there. The prediction is the record at a conversation's end, token counts are of all answers,
/// bytes of the last context; values as of evaluate_quality(), beside a request over `neighbour` when that is given.
[[nodiscard]] std::vector<experiment::SampleOutcome> evaluate_live(const LiveReference& reference, Transformer& model,
                                                                   const Prefill& prompt, const Request& request,
                                                                   std::span<const EvaluatedMethod> methods,
                                                                   const Prefill* neighbour = nullptr);

}  // namespace kvarena::evaluate
