#pragma once
// What every evaluated answer has to say of its session, whatever it was asked.

#include "harness/engine/session/selection_meter.h"
#include "harness/engine/session/session.h"
#include "harness/evaluate/request.h"
#include "harness/results/records.h"
#include "metrics/distribution/divergence.h"

namespace kvarena::evaluate {

/// Prompt hash and lengths.
void describe_prompt(results::SampleResult& result, const Request& request);

/// resident_bytes, full_kv_bytes, kept_bytes_fraction, compression_factor, bits_per_number of codecs, and peak and
/// series of each tier. `full_bytes`: of the same prompt's full cache.
void add_bytes(results::SampleResult& result, const Session& session, int64_t full_bytes);

/// emulated when the session moved bytes over a link of the request's machine that is, or brought chunks over one.
[[nodiscard]] results::Storage storage_of(const Session& session, const Request& request);

/// Of steps along one continuation: kl_nats (mean over steps) and its series, kl_nats_sum, top1_agreement.
void add_divergence(results::SampleResult& result, std::span<const metrics::StepDivergence> steps);

/// Of a session that moved bytes between tiers: link_bytes, link_ms, stall_ms of each pass and on average,
/// prefetch_overlap over all passes.
void add_traffic(results::SampleResult& result, const Session& session, const Request& request);

/// Of methods that reuse entries: recompute_share, recomputed_tokens, reused_bytes, kv_deviation (mean over layers) and
/// the series kv_deviation by layer.
void add_reuse(results::SampleResult& result, const Session& session);

/// The counters that prove that a method acted.
void add_activity(results::SampleResult& result, const Activity& activity);

/// attention_hit_rate, a number a step and a mean; the same by layer; and of methods that select, selection_overlap and
/// loaded_bytes. Nothing of a meter that saw no step.
void add_selections(results::SampleResult& result, const SelectionMeter& meter);

}  // namespace kvarena::evaluate
