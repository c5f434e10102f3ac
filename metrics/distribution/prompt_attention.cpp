#include "metrics/registry.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {

KVARENA_METRIC(
    {.id = kPromptAttentionKept.name,
     .title = kPromptAttentionKept.title,
     .kind = MetricKind::distribution,
     .summary = "Of a method that attends to prompts sparsely, the share of dense attention's softmax weight that "
                "falls on the pairs of query and key which it computes, mean over rows, heads and layers; beside it, "
                "these pairs of all causal ones. Measured in runs whose config lists it: the prompt is read once more.",
     .source = "Xu et al. 2025 (XAttention), section 2",
     .stored = {kPromptAttentionComputed}});

}  // namespace kvarena::metrics
