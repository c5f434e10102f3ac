#include "metrics/registry.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {

KVARENA_METRIC(
    {.id = "server_requests",
     .title = "Requests to a server",
     .kind = MetricKind::latency,
     .unit = "requests",
     .table_scale = 1,
     .better = Better::lower,
     .summary = "Tries that were repeated, requests that failed, and prompt tokens that the server took from "
                "its prefix cache or counts beyond those sent.",
     .source = "kvarena",
     .stored = {kRepeatedRequests, kFailedRequests, kPrefixCachedTokens, kUsageDifference}});

}  // namespace kvarena::metrics
