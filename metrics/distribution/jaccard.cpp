#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "metrics/distribution/selection.h"
#include "metrics/registry.h"

namespace kvarena::metrics {
namespace {

size_t common_to(const std::set<int64_t>& a, const std::set<int64_t>& b) {
  return static_cast<size_t>(std::count_if(a.begin(), a.end(), [&](int64_t i) { return b.contains(i); }));
}

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const auto a = row.at("scores_a").get<std::vector<double>>();
  const auto b = row.at("scores_b").get<std::vector<double>>();
  const auto k = static_cast<int64_t>(std::ceil(row.at("fraction").get<double>() * static_cast<double>(a.size())));
  const auto top_a = top_k_indices(a, k);
  const auto top_b = top_k_indices(b, k);
  return {{"expected", {{"k", k}, {"set_a", top_a}, {"set_b", top_b}, {"jaccard", jaccard(top_a, top_b)}}}};
}

}  // namespace

double overlap(std::span<const int64_t> selected, std::span<const int64_t> wanted) {
  const std::set<int64_t> given(selected.begin(), selected.end());
  const std::set<int64_t> target(wanted.begin(), wanted.end());
  return target.empty() ? 0.0 : static_cast<double>(common_to(target, given)) / static_cast<double>(target.size());
}

double jaccard(std::span<const int64_t> a, std::span<const int64_t> b) {
  const std::set<int64_t> first(a.begin(), a.end());
  const std::set<int64_t> second(b.begin(), b.end());
  const size_t common = common_to(first, second);
  const size_t all = first.size() + second.size() - common;
  return all == 0 ? 1.0 : static_cast<double>(common) / static_cast<double>(all);
}

KVARENA_METRIC(
    {.id = "jaccard",
     .title = "Jaccard overlap of top tokens",
     .kind = MetricKind::distribution,
     .summary = "|A and B| / |A or B| of the ceil(fraction * n) highest-scored tokens of two scorers, ties to "
                "the lower index.",
     .source = "SpecCache, Figure 3",
     .vectors = {{"jaccard_top_fraction", recompute}}});

}  // namespace kvarena::metrics
