#include "metrics/algorithms/ruler.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

MetricScore score(const MetricInput& input) { return {string_match_part(input.prediction, input.references), {}, {}}; }

}  // namespace

KVARENA_METRIC(
    {.id = "string_match_part",
     .title = "RULER string match, any",
     .summary = "1 when any reference occurs in the prediction, case aside: RULER's question-answering tasks.",
     .source = "NVIDIA/RULER @c3f5e3b4 scripts/eval/synthetic/constants.py",
     .score = score});

}  // namespace kvarena::metrics
