#include "metrics/registry.h"

namespace kvarena::metrics {

KVARENA_METRIC(
    {.id = "stored_contexts",
     .title = "Stored contexts",
     .kind = MetricKind::latency,
     .table_scale = 1,
     .summary = "Of requests that begin with a stored context's cache: where they found it, how long it took to come, "
                "what room the tiers gave, and in which forms contexts ended.",
     .source = "Feng et al. 2025 (EvicPress), Figures 7 to 12",
     .stored = {{"memory_hits", "Found in memory", "fraction", 100},
                {"disk_hits", "Found on disk", "fraction", 100, Better::lower},
                {"remote_hits", "Found in remote storage", "fraction", 100, Better::lower},
                {"recomputed_contexts", "Computed anew", "fraction", 100, Better::lower},
                {"cache_load_ms", "Loading a cache", "ms", 1, Better::lower},
                {"cache_restore_ms", "From bytes to a cache", "ms", 1, Better::lower},
                {"peak_memory_bytes", "Bytes in memory, most", "bytes", 1, Better::lower},
                {"peak_disk_bytes", "Bytes on disk, most", "bytes", 1, Better::lower},
                {"keep_in_memory", "Share kept of contexts in memory", "fraction", 100},
                {"keep_on_disk", "Share kept of contexts on disk", "fraction", 100},
                {"reprofiled_contexts", "Contexts profiled anew", "contexts", 1, Better::lower}}});

}  // namespace kvarena::metrics
