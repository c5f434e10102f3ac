#pragma once
// Metrics and series that runs store in the results database: name, title, unit and direction of each, declared here
// and nowhere else. Measuring code and reports refer to the constants.

#include <string_view>

namespace kvarena::metrics {

enum class Better { higher, lower };

/// A series of a sample: a number a step, round, layer or request.
struct StoredSeries {
  const char* name;
  const char* unit;  ///< fraction, nats, ms ...; "" for a plain number
};

/// A value of a sample or a cell. A series of the same numbers has its name and unit.
struct StoredMetric {
  const char* name;
  const char* title;
  const char* unit = "fraction";
  Better better = Better::higher;
  double table_scale = std::string_view(unit) == "fraction" ? 100 : 1;  ///< papers print the stored value times this

  constexpr operator StoredSeries() const { return {name, unit}; }
};

/// A time over many requests.
struct StoredSpread {
  StoredMetric mean, p50, p90, p99;
};

// Prompts, cut tokens included; the samples table holds them.
inline constexpr StoredMetric kPromptLength{"prompt_length", "Tokens of the whole prompt", "tokens"};

// Answers; the samples table holds how long they are, thinking included.
inline constexpr StoredMetric kThinkingTokens{"thinking_tokens", "Tokens of thinking", "tokens"};

// Bytes of a cache right after the prompt.
inline constexpr StoredMetric kResidentBytes{"resident_bytes", "Resident bytes", "bytes", Better::lower};
inline constexpr StoredMetric kSlidingBytes{"sliding_bytes", "Resident bytes of layers with a window", "bytes",
                                            Better::lower};
inline constexpr StoredMetric kStateBytes{"state_bytes", "Resident bytes of recurrent states", "bytes", Better::lower};
inline constexpr StoredMetric kFullKvBytes{"full_kv_bytes", "Bytes of the full cache", "bytes", Better::lower};
inline constexpr StoredMetric kBitsPerNumber{"bits_per_number", "Bits for each number that a codec holds", "bits",
                                             Better::lower};
inline constexpr StoredMetric kKeptBytesFraction{"kept_bytes_fraction", "Resident bytes of full KV", "fraction",
                                                 Better::lower};
inline constexpr StoredMetric kCompressionFactor{"compression_factor", "Compression factor", ""};

// Distance from full KV along its continuation.
inline constexpr StoredMetric kKlNats{"kl_nats", "KL a step", "nats", Better::lower};
inline constexpr StoredMetric kKlNatsSum{"kl_nats_sum", "KL a sequence", "nats", Better::lower};
inline constexpr StoredMetric kTop1Agreement{"top1_agreement", "Same most likely token"};

// Distance of a server's setting from the baseline's along the baseline's continuation, from the likeliest tokens that
// both name: no values of KL over a vocabulary.
inline constexpr StoredMetric kLogprobDifference{"logprob_difference_nats", "Log-probability lost a token", "nats",
                                                 Better::lower};
inline constexpr StoredMetric kKlTopk{"kl_topk_nats", "KL a step, at least", "nats", Better::lower};

// Requests to a server.
inline constexpr StoredMetric kRepeatedRequests{"repeated_requests", "Tries that failed and were repeated", "requests",
                                                Better::lower};
inline constexpr StoredMetric kFailedRequests{"failed_requests", "Requests that failed", "requests", Better::lower};
inline constexpr StoredMetric kPrefixCachedTokens{"prefix_cached_tokens", "Prompt tokens from the server's cache",
                                                  "tokens"};
inline constexpr StoredMetric kUsageDifference{"usage_difference_tokens", "Prompt tokens that the server counts beyond",
                                               "tokens", Better::lower};

// Answers beside full KV's.
inline constexpr StoredMetric kFirstDivergence{"first_divergence", "First differing token", "tokens"};
inline constexpr StoredMetric kExactMatchFull{"exact_match_full", "Same answer as full KV"};

// Function calls asked for.
inline constexpr StoredMetric kExactCallAccuracy{"exact_call_accuracy", "Exact function-call accuracy"};
inline constexpr StoredMetric kGoldenCalls{"golden_calls", "Golden calls", "calls"};

// Steps of a loop of tool calls, by what became of them.
inline constexpr StoredMetric kToolSteps{"tool_loop_steps", "Steps with the right call"};
inline constexpr StoredMetric kMalformedCalls{"tool_loop_malformed", "Steps with a malformed call", "fraction",
                                              Better::lower};
inline constexpr StoredMetric kMissingCalls{"tool_loop_missing", "Steps without a call", "fraction", Better::lower};
inline constexpr StoredMetric kWrongTools{"tool_loop_wrong_tool", "Steps with another tool", "fraction", Better::lower};
inline constexpr StoredMetric kWrongArguments{"tool_loop_wrong_argument", "Steps with a wrong argument", "fraction",
                                              Better::lower};
inline constexpr StoredMetric kStaleValues{"tool_loop_stale", "Steps with a value no longer right", "fraction",
                                           Better::lower};

// Instructions of a prompt that an answer follows (IFEval), beside whether it follows all of them.
inline constexpr StoredMetric kInstructionsStrict{"ifeval_instruction_strict", "IFEval, instructions, strict"};
inline constexpr StoredMetric kInstructionsLoose{"ifeval_instruction_loose", "IFEval, instructions, loose"};
inline constexpr StoredMetric kPromptLoose{"ifeval_prompt_loose", "IFEval, prompts, loose"};
inline constexpr StoredMetric kInstructions{"instructions", "Instructions", "instructions"};

// Texts that are scored.
inline constexpr StoredMetric kPerplexity{"perplexity", "Perplexity", "perplexity", Better::lower};
inline constexpr StoredMetric kPerplexityWord{"perplexity_word", "Perplexity a word", "perplexity", Better::lower};

// Drafts.
inline constexpr StoredMetric kAcceptanceRate{"acceptance_rate", "Accepted of drafted"};
inline constexpr StoredMetric kAcceptanceLength{"acceptance_length", "Accepted a round", "tokens"};
inline constexpr StoredMetric kTokensPerVerify{"tokens_per_verify", "Emitted a round", "tokens"};

// Entries that a decoding step attends to.
inline constexpr StoredMetric kAttentionHitRate{"attention_hit_rate", "Attention hit rate"};
inline constexpr StoredMetric kAttendedShare{"attended_share", "Entries attended", "fraction", Better::lower};
inline constexpr StoredMetric kSelectionOverlap{"selection_overlap", "Selected again"};
inline constexpr StoredMetric kLoadedBytes{"loaded_bytes", "Loaded a step", "bytes", Better::lower};

// Pairs of query and key that a sparse prefill computes.
inline constexpr StoredMetric kPromptAttentionKept{"prompt_attention_kept", "Prompt attention kept"};
inline constexpr StoredMetric kPromptAttentionComputed{"prompt_attention_computed", "Prompt attention computed",
                                                       "fraction", Better::lower};

// Agreement on the important tokens of a prompt.
inline constexpr StoredMetric kTokenOverlap{"token_overlap", "Overlap of important tokens", "fraction", Better::higher,
                                            1};
inline constexpr StoredMetric kShallowDeepOverlap{"shallow_deep_overlap", "First layer's choice in deep ones",
                                                  "fraction", Better::higher, 1};

// Times and rates of a request, and of requests under load.
inline constexpr StoredMetric kPrefillMs{"prefill_ms", "Prefill", "ms", Better::lower};
inline constexpr StoredMetric kObserveMs{"observe_ms", "Observation", "ms", Better::lower};
inline constexpr StoredMetric kCompressMs{"compress_ms", "Compression", "ms", Better::lower};
inline constexpr StoredMetric kCompressionOverhead{"compression_overhead", "Compression, of the prefill", "fraction",
                                                   Better::lower};
inline constexpr StoredMetric kTimeToFirstTokenMs{"time_to_first_token_ms", "Time to first token", "ms", Better::lower};
inline constexpr StoredMetric kInterTokenLatencyMs{"inter_token_latency_ms", "Inter-token latency", "ms",
                                                   Better::lower};
inline constexpr StoredMetric kThroughputTokensPerS{"throughput_tokens_per_s", "Throughput", "tokens/s"};
inline constexpr StoredMetric kBatchRequests{"batch_requests", "Requests of the batch", "requests"};
inline constexpr StoredMetric kConcurrentRequests{"concurrent_requests", "Requests at a time", "requests"};
inline constexpr StoredMetric kOfferedRequestsPerS{"offered_requests_per_s", "Requests offered", "requests/s"};
inline constexpr StoredSpread kTimeToFirstTokenSpread{
    .mean = {"mean_time_to_first_token_ms", "Time to first token, mean", "ms", Better::lower},
    .p50 = {"p50_time_to_first_token_ms", "Time to first token, median", "ms", Better::lower},
    .p90 = {"p90_time_to_first_token_ms", "Time to first token, 90%", "ms", Better::lower},
    .p99 = {"p99_time_to_first_token_ms", "Time to first token, 99%", "ms", Better::lower}};
inline constexpr StoredSpread kQueueingSpread{.mean = {"mean_queueing_ms", "Queueing, mean", "ms", Better::lower},
                                              .p50 = {"p50_queueing_ms", "Queueing, median", "ms", Better::lower},
                                              .p90 = {"p90_queueing_ms", "Queueing, 90%", "ms", Better::lower},
                                              .p99 = {"p99_queueing_ms", "Queueing, 99%", "ms", Better::lower}};
inline constexpr StoredSpread kInterTokenLatencySpread{
    .mean = {"mean_inter_token_latency_ms", "Inter-token latency, mean", "ms", Better::lower},
    .p50 = {"p50_inter_token_latency_ms", "Inter-token latency, median", "ms", Better::lower},
    .p90 = {"p90_inter_token_latency_ms", "Inter-token latency, 90%", "ms", Better::lower},
    .p99 = {"p99_inter_token_latency_ms", "Inter-token latency, 99%", "ms", Better::lower}};
inline constexpr StoredSpread kEndToEndSpread{.mean = {"mean_end_to_end_ms", "Whole answer, mean", "ms", Better::lower},
                                              .p50 = {"p50_end_to_end_ms", "Whole answer, median", "ms", Better::lower},
                                              .p90 = {"p90_end_to_end_ms", "Whole answer, 90%", "ms", Better::lower},
                                              .p99 = {"p99_end_to_end_ms", "Whole answer, 99%", "ms", Better::lower}};
inline constexpr StoredMetric kServedTokensPerS{"served_tokens_per_s", "Output tokens served", "tokens/s"};
inline constexpr StoredMetric kServedRequestsPerS{"served_requests_per_s", "Requests served", "requests/s"};
inline constexpr StoredMetric kAttainment{"attainment", "Requests within objectives"};
inline constexpr StoredMetric kGoodputLatencyPerS{"goodput_latency_per_s", "Goodput by latency", "requests/s"};
inline constexpr StoredMetric kGoodputScorePerS{"goodput_score_per_s", "Goodput by score", "requests/s"};
inline constexpr StoredMetric kGoodputRatePerS{"goodput_rate_per_s", "Largest load within objectives", "requests/s"};
inline constexpr StoredMetric kServedScore{"served_score", "Score under load"};
inline constexpr StoredMetric kRefusedRequests{"refused_requests", "Requests refused", "requests", Better::lower};
inline constexpr StoredMetric kPeakCacheBytes{"peak_cache_bytes", "Cache bytes of all requests, most", "bytes",
                                              Better::lower};

// A pass and the link behind the device.
inline constexpr StoredMetric kLinkBytes{"link_bytes", "Brought a pass", "bytes", Better::lower};
inline constexpr StoredMetric kLinkMs{"link_ms", "Link occupied a pass", "ms", Better::lower};
inline constexpr StoredMetric kStallMs{"stall_ms", "Waited for the link a pass", "ms", Better::lower};
inline constexpr StoredMetric kPrefetchOverlap{"prefetch_overlap", "Link time hidden"};
inline constexpr StoredMetric kLinkUtilisation{"link_utilisation", "Link occupied"};
inline constexpr StoredMetric kLinkRate{"link_gb_per_s", "Rate of the link", "GB/s"};
inline constexpr StoredMetric kVerifyShare{"verify_share", "Time in passes that verify", "fraction", Better::lower};
inline constexpr StoredMetric kLateVerifies{"late_verifies", "Verifications that waited for a cache", "verifications",
                                            Better::lower};
inline constexpr StoredMetric kTokensPerPass{"tokens_per_pass", "A pass of all requests", "tokens", Better::higher};
inline constexpr StoredMetric kMeanPassMs{"mean_pass_ms", "A pass, mean", "ms", Better::lower};
inline constexpr StoredMetric kFullCachesKept{"full_caches_kept", "Full caches that stayed on the device", "requests"};
inline constexpr StoredMetric kFallenBack{"fallen_back", "Requests that fell back to full KV", "requests"};
inline constexpr StoredMetric kIterationMs{"iteration_ms", "A pass", "ms", Better::lower};
inline constexpr StoredMetric kIterationBytes{"iteration_bytes", "Device bytes in a pass", "bytes", Better::lower};

// Entries reused from earlier prompts.
inline constexpr StoredMetric kRecomputeShare{"recompute_share", "Computed anew", "fraction", Better::lower};
inline constexpr StoredMetric kRecomputedTokens{"recomputed_tokens", "Context tokens computed by all layers", "tokens",
                                                Better::lower};
inline constexpr StoredMetric kReusedBytes{"reused_bytes", "Bytes reused", "bytes", Better::lower};
inline constexpr StoredMetric kKvDeviation{"kv_deviation", "Deviation from full KV", "cosine distance", Better::lower};
inline constexpr StoredMetric kLoadMs{"load_ms", "Loading", "ms", Better::lower};
inline constexpr StoredMetric kScoreMs{"score_ms", "Scoring", "ms", Better::lower};
inline constexpr StoredMetric kAlignMs{"align_ms", "Choosing and aligning", "ms", Better::lower};
inline constexpr StoredMetric kScoringOverhead{"scoring_overhead", "Scoring and choosing, of the prefill", "fraction",
                                               Better::lower};

// Prompts whose caches lie in a store behind links.
inline constexpr StoredMetric kFirstDraftMs{"first_draft_ms", "First token drafted", "ms", Better::lower};
inline constexpr StoredMetric kEndToEndMs{"end_to_end_ms", "Whole answer", "ms", Better::lower};
inline constexpr StoredMetric kFastLinkBytes{"fast_link_bytes", "Over the fast link a request", "bytes", Better::lower};
inline constexpr StoredMetric kSlowLinkBytes{"slow_link_bytes", "Over the slow link a request", "bytes", Better::lower};
inline constexpr StoredMetric kSlowLinkUtilisation{"slow_link_utilisation", "Slow links occupied"};
inline constexpr StoredMetric kTransferHidden{"transfer_hidden", "Transfers hidden"};
inline constexpr StoredMetric kPlannedTokensPerS{"planned_tokens_per_s", "Throughput expected", "tokens/s"};

// Requests that begin with a stored context.
inline constexpr StoredMetric kDeviceHits{"device_hits", "Found ready on the device"};
inline constexpr StoredMetric kMemoryHits{"memory_hits", "Found in memory"};
inline constexpr StoredMetric kDiskHits{"disk_hits", "Found on disk", "fraction", Better::lower};
inline constexpr StoredMetric kRemoteHits{"remote_hits", "Found in remote storage", "fraction", Better::lower};
inline constexpr StoredMetric kRecomputedContexts{"recomputed_contexts", "Computed anew", "fraction", Better::lower};
inline constexpr StoredMetric kCacheLoadMs{"cache_load_ms", "Loading a cache", "ms", Better::lower};
inline constexpr StoredMetric kCacheRestoreMs{"cache_restore_ms", "From bytes to a cache", "ms", Better::lower};
inline constexpr StoredMetric kPeakDeviceBytes{"peak_device_bytes", "Bytes of contexts on the device, most", "bytes",
                                               Better::lower};
inline constexpr StoredMetric kPeakMemoryBytes{"peak_memory_bytes", "Bytes in memory, most", "bytes", Better::lower};
inline constexpr StoredMetric kPeakDiskBytes{"peak_disk_bytes", "Bytes on disk, most", "bytes", Better::lower};
inline constexpr StoredMetric kKeepOnDevice{"keep_on_device", "Share kept of contexts on the device"};
inline constexpr StoredMetric kKeepInMemory{"keep_in_memory", "Share kept of contexts in memory"};
inline constexpr StoredMetric kKeepOnDisk{"keep_on_disk", "Share kept of contexts on disk"};
inline constexpr StoredMetric kReprofiledContexts{"reprofiled_contexts", "Contexts profiled anew", "contexts",
                                                  Better::lower};
inline constexpr StoredMetric kFirstTokenWhileProfiling{"profiling_p99_time_to_first_token_ms",
                                                        "Time to first token while contexts are profiled anew, p99",
                                                        "ms", Better::lower};
inline constexpr StoredMetric kFirstTokenBeforeProfilings{"before_profiling_p99_time_to_first_token_ms",
                                                          "Time to first token before any is profiled anew, p99", "ms",
                                                          Better::lower};
inline constexpr StoredMetric kFirstTokenAfterProfilings{"after_profiling_p99_time_to_first_token_ms",
                                                         "Time to first token after some were profiled anew, p99", "ms",
                                                         Better::lower};
inline constexpr StoredMetric kLostUtility{"lost_utility_s", "Utility of a use, below the exact optimum's", "s",
                                           Better::lower};
inline constexpr StoredMetric kOriginalBytes{"original_bytes", "Uncompressed caches kept to make forms of", "bytes",
                                             Better::lower};

// Series that no metric has the name of.
inline constexpr StoredSeries kDeviceBytes{"device_bytes", "bytes"};
inline constexpr StoredSeries kHostBytes{"host_bytes", "bytes"};
inline constexpr StoredSeries kDiskBytes{"disk_bytes", "bytes"};
inline constexpr StoredSeries kAttentionHitRateByLayer{"attention_hit_rate_by_layer", "fraction"};
inline constexpr StoredSeries kFirstLayerOverlap{"first_layer_overlap", "fraction"};
inline constexpr StoredSeries kNllNats{"nll_nats", "nats"};
inline constexpr StoredSeries kDraftedTokens{"drafted", "tokens"};
inline constexpr StoredSeries kAcceptedTokens{"accepted", "tokens"};
inline constexpr StoredSeries kQueueingMs{"queueing_ms", "ms"};
inline constexpr StoredSeries kAnswerSimilarity{"answer_similarity", "fraction"};
inline constexpr StoredSeries kAnsweredMs{"answered_ms", "ms"};
inline constexpr StoredSeries kRequestTokens{"request_tokens", "tokens"};

// Events of a sample, with members of their data.
inline constexpr const char* kThought = "thought";               // text: what the model thought before its answer
inline constexpr const char* kContextStored = "context_stored";  // context, form, keep, tier: as a run ended
inline constexpr const char* kContextProfiled =
    "context_profiled";  // context, began_ms: profiled anew, when that ended

}  // namespace kvarena::metrics
