#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/core/error.h"
#include "metrics/distribution/selection.h"
#include "metrics/registry.h"
#include "metrics/stored_metrics.h"

namespace kvarena::metrics {
namespace {

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const auto weights = row.at("attention_weights").get<std::vector<double>>();
  const auto selected = row.at("selected").get<std::vector<int64_t>>();
  const auto best = top_k_indices(weights, row.at("k").get<int64_t>());
  return {{"expected",
           {{"topk_indices", best},
            {"topk_hit_rate", attention_hit_rate(weights, best)},
            {"selected_hit_rate", attention_hit_rate(weights, selected)},
            {"overlap_with_topk", overlap(selected, best)}}}};
}

}  // namespace

std::vector<int64_t> top_k_indices(std::span<const double> values, int64_t k) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto end = order.begin() + std::clamp<int64_t>(k, 0, static_cast<int64_t>(order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](int64_t a, int64_t b) {
    const double x = values[static_cast<size_t>(a)];
    const double y = values[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  order.erase(end, order.end());
  std::sort(order.begin(), order.end());
  return order;
}

double attention_hit_rate(std::span<const double> weights, std::span<const int64_t> selected) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  double hit = 0;
  for (const int64_t i : selected) {
    KVARENA_ASSERT(i >= 0 && i < static_cast<int64_t>(weights.size()),
                   fmt::format("selected {} of kv_len {}", i, weights.size()));
    hit += weights[static_cast<size_t>(i)];
  }
  return all == 0 ? 0.0 : hit / all;
}

KVARENA_METRIC(
    {.id = kAttentionHitRate.name,
     .title = kAttentionHitRate.title,
     .kind = MetricKind::distribution,
     .summary = "Share of the full softmax weight that the selected keys carry, mean over queries, heads and "
                "layers; overlap with the true top-k beside it. Measured in runs whose config lists it: it costs the "
                "full keys and one more attention a step.",
     .source = "SpeCache, Figure 2",
     .stored = {kAttendedShare, kSelectionOverlap, kLoadedBytes},
     .vectors = {{"attention_hit_rate", recompute}}});

}  // namespace kvarena::metrics
