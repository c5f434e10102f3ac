#pragma once
// Values that every evaluated answer takes from its session.

#include "harness/engine/session/selection_meter.h"
#include "harness/engine/session/session.h"
#include "harness/evaluate/request.h"
#include "harness/results/records.h"
#include "metrics/distribution/divergence.h"

namespace kvarena::evaluate {

/// Sets prompt hash and lengths.
void describe_prompt(results::SampleResult& result, const Request& request);

/// Sets what describe_prompt() does, and the answer: its length, its text, and why it ended.
void describe_answer(results::SampleResult& result, const Request& request, const SessionResult& session);

/// Adds resident_bytes, sliding_bytes of models with layers of both kinds, full_kv_bytes, kept_bytes_fraction,
/// compression_factor, bits_per_number of codecs, and peak and series of each tier. `full_bytes`: size of the same
/// prompt's full cache.
void add_bytes(results::SampleResult& result, const SessionResult& session, int64_t full_bytes);

/// `emulated` when bytes came over a link of the request's machine and that is emulated.
[[nodiscard]] results::Storage storage_of(const Request& request, bool over_link);
/// Storage of a session, which may have moved bytes or brought chunks over one.
[[nodiscard]] results::Storage storage_of(const SessionResult& session, const Request& request);

/// Adds, of steps along one continuation, kl_nats (mean over steps) and its series, kl_nats_sum, top1_agreement.
void add_divergence(results::SampleResult& result, std::span<const metrics::StepDivergence> steps);

/// Adds, when the session moved bytes between tiers, link_bytes, link_ms, stall_ms of each pass and on average, and
/// prefetch_overlap over all passes.
void add_traffic(results::SampleResult& result, const SessionResult& session, const Request& request);

/// Adds, when the method reused entries, recompute_share, recomputed_tokens, reused_bytes, kv_deviation (mean over
/// layers) and its series by layer.
void add_reuse(results::SampleResult& result, const SessionResult& session);

/// Sets the counters that prove that a method acted.
void add_activity(results::SampleResult& result, const Activity& activity);

/// Adds attention_hit_rate and attended_share, a number a step and their mean; the first by layer; of methods that
/// select selection_overlap and loaded_bytes. The first step follows `prompt_tokens`. Adds nothing of a meter that saw
/// no step.
void add_selections(results::SampleResult& result, const SelectionMeter& meter, int64_t prompt_tokens);

}  // namespace kvarena::evaluate
