#include "metrics/registry.h"

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
     .stored = {{"recompute_share", "Computed anew", "fraction", 100, Better::lower},
                {"recomputed_tokens", "Context tokens computed by all layers", "tokens", 1, Better::lower},
                {"reused_bytes", "Bytes reused", "bytes", 1, Better::lower},
                {"kv_deviation", "Deviation from full KV", "cosine distance", 1, Better::lower},
                {"load_ms", "Loading", "ms", 1, Better::lower},
                {"score_ms", "Scoring", "ms", 1, Better::lower},
                {"align_ms", "Choosing and aligning", "ms", 1, Better::lower}}});

}  // namespace kvarena::metrics
