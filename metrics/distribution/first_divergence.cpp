#include <algorithm>

#include "metrics/distribution/divergence.h"
#include "metrics/registry.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {

std::optional<int64_t> first_divergence(std::span<const int64_t> full, std::span<const int64_t> lossy) {
  const auto [a, b] = std::mismatch(full.begin(), full.end(), lossy.begin(), lossy.end());
  if (a == full.end() && b == lossy.end()) return std::nullopt;
  return a - full.begin();
}

KVARENA_METRIC({.id = kFirstDivergence.name,
                .title = kFirstDivergence.title,
                .kind = MetricKind::distribution,
                .unit = kFirstDivergence.unit,
                .table_scale = kFirstDivergence.table_scale,
                .summary = "Tokens two greedy continuations share before the first one that differs.",
                .source = "kvarena",
                .stored = {kExactMatchFull}});

}  // namespace kvarena::metrics
