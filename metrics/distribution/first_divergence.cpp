#include <algorithm>

#include "metrics/distribution/divergence.h"
#include "metrics/registry.h"

namespace kvarena::metrics {

std::optional<int64_t> first_divergence(std::span<const int64_t> full, std::span<const int64_t> lossy) {
  const auto [a, b] = std::mismatch(full.begin(), full.end(), lossy.begin(), lossy.end());
  if (a == full.end() && b == lossy.end()) return std::nullopt;
  return a - full.begin();
}

KVARENA_METRIC({.id = "first_divergence",
                .title = "First differing token",
                .kind = MetricKind::distribution,
                .unit = "tokens",
                .table_scale = 1,
                .summary = "Tokens two greedy continuations share before the first one that differs.",
                .source = "kvarena",
                .stored = {{"exact_match_full", "Same answer as full KV"}}});

}  // namespace kvarena::metrics
