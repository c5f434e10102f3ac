#include "metrics/registry.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {

KVARENA_METRIC(
    {.id = "stored_contexts",
     .title = "Stored contexts",
     .kind = MetricKind::latency,
     .table_scale = 1,
     .summary = "Of requests that begin with a stored context's cache: where they found it, how long it took to come, "
                "what room the tiers gave, and in which forms contexts ended.",
     .source = "Feng et al. 2025 (EvicPress), Figures 7 to 12",
     .stored = {kDeviceHits, kMemoryHits, kDiskHits, kRemoteHits, kRecomputedContexts, kCacheLoadMs, kCacheRestoreMs,
                kPeakDeviceBytes, kPeakMemoryBytes, kPeakDiskBytes, kKeepOnDevice, kKeepInMemory, kKeepOnDisk,
                kLostUtility, kReprofiledContexts, kFirstTokenBeforeProfilings, kFirstTokenWhileProfiling,
                kFirstTokenAfterProfilings, kOriginalBytes}});

}  // namespace kvarena::metrics
