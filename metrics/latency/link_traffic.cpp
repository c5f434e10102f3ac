#include "metrics/registry.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {

KVARENA_METRIC(
    {.id = "link_traffic",
     .title = "Bytes over the link",
     .kind = MetricKind::latency,
     .unit = "bytes",
     .table_scale = 1,
     .better = Better::lower,
     .summary =
         "What a decoding pass brought from the tier behind the device, how long that occupied the link, and how "
         "long the pass waited for it; the rest of the link's time was hidden behind computing.",
     .source = "SpeCache, section 4.5 and table 4; VeriCache, section 4.2",
     .stored = {kLinkBytes, kLinkMs, kStallMs, kPrefetchOverlap, kLinkUtilisation, kLinkRate, kVerifyShare,
                kLateVerifies, kTokensPerPass, kMeanPassMs, kFullCachesKept, kFallenBack, kIterationMs,
                kIterationBytes}});

}  // namespace kvarena::metrics
