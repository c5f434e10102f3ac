#include "metrics/registry.h"

namespace kvarena::metrics {

KVARENA_METRIC(
    {.id = "token_overlap",
     .title = "Overlap of important tokens",
     .kind = MetricKind::distribution,
     .table_scale = 1,
     .summary = "Jaccard similarity of the fifth of a prompt's tokens that a speculative model's deep layers call "
                "important with the target's own; of the baseline, of those that the target's first layer calls so "
                "with its deep ones'. Measured in runs whose config lists it: the target reads each prompt once more.",
     .source = "Wen et al. 2026 (SpecCache), Figure 3",
     .stored = {{"shallow_deep_overlap", "First layer's choice in deep ones", "fraction", 1}}});

}  // namespace kvarena::metrics
