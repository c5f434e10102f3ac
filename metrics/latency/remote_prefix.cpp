#include "metrics/registry.h"

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
     .stored = {{"first_draft_ms", "First token drafted", "ms", 1, Better::lower},
                {"end_to_end_ms", "Whole answer", "ms", 1, Better::lower},
                {"fast_link_bytes", "Over the fast link a request", "bytes", 1, Better::lower},
                {"slow_link_bytes", "Over the slow link a request", "bytes", 1, Better::lower},
                {"slow_link_utilisation", "Slow links occupied", "fraction", 100},
                {"transfer_hidden", "Transfers hidden", "fraction", 100},
                {"planned_tokens_per_s", "Throughput expected", "tokens/s", 1}}});

}  // namespace kvarena::metrics
