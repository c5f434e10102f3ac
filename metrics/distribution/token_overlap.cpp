#include "metrics/registry.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {

KVARENA_METRIC(
    {.id = kTokenOverlap.name,
     .title = kTokenOverlap.title,
     .kind = MetricKind::distribution,
     .table_scale = kTokenOverlap.table_scale,
     .summary = "Jaccard similarity of the fifth of a prompt's tokens that a speculative model's deep layers call "
                "important with the target's own; of the baseline, of those that the target's first layer calls so "
                "with its deep ones'. Measured in runs whose config lists it: the target reads each prompt once more.",
     .source = "Wen et al. 2026 (SpecCache), Figure 3",
     .stored = {kShallowDeepOverlap}});

}  // namespace kvarena::metrics
