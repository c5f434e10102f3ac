#include <algorithm>
#include <nlohmann/json.hpp>

#include "metrics/latency/serving.h"
#include "metrics/registry.h"
#include "metrics/statistics.h"

namespace kvarena::metrics {
namespace {

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const ScoreGoodput g =
      score_goodput(row.at("scores").get<std::vector<double>>(),
                    row.at("full_recompute_scores").get<std::vector<double>>(), row.at("duration_s").get<double>());
  return {{"expected",
           {{"gamma", g.gamma}, {"valid", g.valid}, {"goodput", g.goodput_per_s}, {"throughput", g.throughput_per_s}}}};
}

}  // namespace

ScoreGoodput score_goodput(std::span<const double> scores, std::span<const double> full_recompute_scores,
                           double duration_s, double share) {
  ScoreGoodput g;
  g.gamma = share * mean_of(full_recompute_scores);
  const auto passing = [&](std::span<const double> values) {
    return std::count_if(values.begin(), values.end(), [&](double v) { return v >= g.gamma; });
  };
  g.valid = passing(scores);
  if (duration_s > 0) {
    g.goodput_per_s = static_cast<double>(g.valid) / duration_s;
    g.throughput_per_s = static_cast<double>(scores.size()) / duration_s;
  }
  if (!full_recompute_scores.empty()) {
    g.full_recompute_valid_share =
        static_cast<double>(passing(full_recompute_scores)) / static_cast<double>(full_recompute_scores.size());
  }
  return g;
}

KVARENA_METRIC({.id = "score_goodput",
                .title = "Goodput by answer score",
                .kind = MetricKind::latency,
                .unit = "requests per second",
                .table_scale = 1,
                .summary = "Requests per second whose score is at least 0.8 times the mean score of full recompute.",
                .source = "SpecCache, Equation 8",
                .vectors = {{"speccache_goodput", recompute}}});

}  // namespace kvarena::metrics
