#include "metrics/registry.h"

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
     .stored = {{"link_bytes", "Brought a pass", "bytes", 1, Better::lower},
                {"link_ms", "Link occupied a pass", "ms", 1, Better::lower},
                {"stall_ms", "Waited for the link a pass", "ms", 1, Better::lower},
                {"prefetch_overlap", "Link time hidden", "fraction", 100, Better::higher},
                {"link_utilisation", "Link occupied", "fraction", 100},
                {"verify_share", "Time in passes that verify", "fraction", 100, Better::lower},
                {"late_verifies", "Verifications that waited for a cache", "verifications", 1, Better::lower},
                {"iteration_ms", "A pass", "ms", 1, Better::lower},
                {"iteration_bytes", "Device bytes in a pass", "bytes", 1, Better::lower}}});

}  // namespace kvarena::metrics
