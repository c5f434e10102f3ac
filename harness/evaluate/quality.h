#pragma once
// Quality of several methods on one sample, all from one shared prefill.

#include <optional>
#include <vector>

#include "harness/engine/session/prefill.h"
#include "harness/evaluate/evaluated_method.h"
#include "harness/evaluate/request.h"

namespace kvarena {
class PrefillFolder;
}

namespace kvarena::evaluate {

/// Prompt tokens in one pass of a noise-floor run: neither a multiple nor a divisor of what prefill, cells and
/// attention use.
inline constexpr int64_t kOtherChunk = 200;

/// The prompt of a context, from one sample that asks about it to the next.
struct OpenPrompt {
  std::optional<Prefill> prompt;  // empty at first
  bool last = false;              // whether no further sample is to ask about it
};

/// Generates with full KV first, then with every method freely and, from where a method's answer departs,
/// teacher-forced on the full-KV continuation, so that KL is known at every step of it. Methods share passes; what one
/// computes does not depend on the others. A method that throws gets an outcome with the reason, the others their
/// results. Values per sample: the request's metrics; kl_nats (mean), kl_nats_sum, top1_agreement, exact_match_full,
/// first_divergence; resident_bytes, full_kv_bytes, kept_bytes_fraction, compression_factor; for verification methods
/// acceptance_rate, acceptance_length, tokens_per_verify; where the request asks, TokenOverlaps. Series: kl_nats, and
/// drafted and accepted per round. Of a live request each method holds a conversation of its own (live_conversation.h).
///
/// `context`: null, or the prompt that the sample before left under the same methods, which must outlive it. Where it
/// is this request's prompt too, that is neither read nor compressed again: every method answers from a copy of what it
/// made then. Otherwise this request's takes its place. `prefills`: null, or where prompts that were
/// read are found. Answers are the same in any case.
[[nodiscard]] std::vector<experiment::SampleOutcome> evaluate_quality(Transformer& model, const Request& request,
                                                                      std::span<const EvaluatedMethod> methods,
                                                                      OpenPrompt* context = nullptr,
                                                                      const PrefillFolder* prefills = nullptr);

/// Full KV against full KV: the reference as in evaluate_quality, then the baseline on a prompt that was prefilled in
/// other chunks and decoded in one batch with a request of another length. The same values as evaluate_quality's;
/// whatever they differ by from the first run is noise of the engine. Nothing is shared between the two runs but the
/// weights.
[[nodiscard]] experiment::SampleOutcome evaluate_noise_floor(Transformer& model, const Request& request,
                                                             const EvaluatedMethod& baseline);

}  // namespace kvarena::evaluate
