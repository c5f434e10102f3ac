#include "metrics/registry.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {

KVARENA_METRIC(
    {.id = "remote_prefix",
     .title = "Remote prefix caching",
     .kind = MetricKind::latency,
     .table_scale = 1,
     .better = Better::lower,
     .summary = "Of requests whose prompts' caches lie in a store: when their first token was drafted and when their "
                "last one came, what went over the fast and the slow link, how much of that passes hid, and what the "
                "linear programme over paths expected of this machine.",
     .source = "VeriCache, sections 4.2.2 and 5.3, Appendix B.2",
     .stored = {kFirstDraftMs, kEndToEndMs, kFastLinkBytes, kSlowLinkBytes, kSlowLinkUtilisation, kTransferHidden,
                kPlannedTokensPerS}});

}  // namespace kvarena::metrics
