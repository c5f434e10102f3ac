#include <fmt/format.h>

#include <limits>

#include "harness/core/error.h"
#include "metrics/latency/memory.h"
#include "metrics/registry.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {

int64_t full_cache_bytes(int64_t layers, int64_t kv_heads, int64_t head_dim, int64_t kv_len,
                         int64_t bytes_per_element) {
  return 2 * layers * kv_heads * head_dim * kv_len * bytes_per_element;
}

CacheSize cache_size(int64_t resident_bytes, int64_t full_bytes) {
  KVARENA_ASSERT(full_bytes > 0 && resident_bytes >= 0,
                 fmt::format("resident {}, full {}", resident_bytes, full_bytes));
  const auto resident = static_cast<double>(resident_bytes);
  const auto full = static_cast<double>(full_bytes);
  return {resident / full, resident_bytes == 0 ? std::numeric_limits<double>::infinity() : full / resident};
}

KVARENA_METRIC(
    {.id = "cache_size",
     .title = "Cache size ratio",
     .kind = MetricKind::latency,
     .table_scale = 1,
     .better = Better::lower,
     .summary = "Measured resident bytes, metadata included, over the bytes of the full cache in the model's type; "
                "at the end of prefill and at peak.",
     .source = "kvarena; SpeCache's \"0.16x\" counts the maximum context length",
     .stored = {kResidentBytes, kSlidingBytes, kStateBytes, kFullKvBytes, kBitsPerNumber, kKeptBytesFraction,
                kCompressionFactor}});

}  // namespace kvarena::metrics
