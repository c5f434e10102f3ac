#include "metrics/registry.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {

KVARENA_METRIC(
    {.id = "kv_reuse",
     .title = "Reuse of KV entries",
     .kind = MetricKind::latency,
     .table_scale = 1,
     .better = Better::lower,
     .summary = "Of methods that reuse entries of earlier prompts: what they compute anew, what they load, how far "
                "their cache is from the full one by layer, and the parts of their time to first token.",
     .source = "Wen et al. 2026 (SpecCache), Figures 2 and 6",
     .stored = {kRecomputeShare, kRecomputedTokens, kReusedBytes, kKvDeviation, kLoadMs, kScoreMs, kAlignMs,
                kScoringOverhead}});

}  // namespace kvarena::metrics
