#pragma once
// Latency and throughput of one method on one sample, alone or in a batch of its like.

#include "harness/evaluate/evaluated_method.h"
#include "harness/evaluate/request.h"
#include "harness/experiment/config.h"

namespace kvarena::evaluate {

/// Each repeat does its own prefill, observing only what this method needs, then compresses and decodes; warm-ups come
/// first and are not counted. Values are medians over the repeats, on the measured clock: prefill_ms, observe_ms (of
/// it, what this method asked to observe, extra passes included), compress_ms (from the full cache to the method's),
/// compression_overhead (both, as a fraction of the prefill that observes nothing; not of methods that fill the cache
/// themselves), time_to_first_token_ms (prompt to first token, compression included), end_to_end_ms (prompt to last
/// token), inter_token_latency_ms (median gap), throughput_tokens_per_s (output tokens after the first over the time
/// they took). With a batch, so many equal requests are decoded in shared passes: latencies are those of the first,
/// throughput is of all, peaks are of all. device_mib lets so many run at a time: concurrent_requests, tokens_per_pass
/// (after the first tokens), mean_pass_ms. Then of a verifier with a schedule also link_gb_per_s (that the schedule
/// counts on), link_utilisation (share of decoding in which the link was occupied), verify_share (in passes that verify
/// something), late_verifies, full_caches_kept, fallen_back, and of the last repeat, by pass, iteration_ms and
/// iteration_bytes. Beside them, what the first moved between tiers. A method that reuses entries finds its memory
/// primed by earlier requests: its prefill_ms is the pass over the tokens that it recomputes, beside load_ms and, while
/// entries are loaded, score_ms and align_ms, whose sum over prefill_ms is scoring_overhead. Series hold one number a
/// repeat, and every gap of the last repeat.
[[nodiscard]] experiment::SampleOutcome evaluate_timing(Transformer& model, const Request& request,
                                                        const EvaluatedMethod& evaluated,
                                                        const experiment::TimingSettings& settings);

}  // namespace kvarena::evaluate
