#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/protocol/needle_protocol.h"
#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

std::vector<double> linspace(double min, double max, int64_t n) {
  std::vector<double> points(static_cast<size_t>(n));
  const double step = n > 1 ? (max - min) / static_cast<double>(n - 1) : 0;
  for (size_t i = 0; i < points.size(); ++i) points[i] = min + static_cast<double>(i) * step;
  if (n > 1) points.back() = max;
  return points;
}

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const auto kind = row.at("kind").get<std::string>();
  const auto min = row.at("min").get<double>();
  const auto max = row.at("max").get<double>();
  const auto n = row.at("n").get<int64_t>();
  if (kind == "depths_sigmoid") return {{"expected", needle_depths_sigmoid(min, max, n)}};
  if (kind == "lengths_linear" || kind == "depths_linear") return {{"expected", needle_grid(min, max, n)}};
  fail({.place = "niah_grid: kind",
        .found = fmt::format("\"{}\"", kind),
        .expected = "lengths_linear, depths_linear or depths_sigmoid"});
}

}  // namespace

std::vector<int64_t> needle_grid(double min, double max, int64_t n) {
  std::vector<int64_t> grid;
  for (const double x : linspace(min, max, n)) grid.push_back(static_cast<int64_t>(std::nearbyint(x)));
  return grid;
}

std::vector<double> needle_depths_sigmoid(double min, double max, int64_t n) {
  std::vector<double> depths;
  for (const double x : linspace(min, max, n)) {
    depths.push_back(x == 0 || x == 100 ? x : numpy_round(100 / (1 + std::exp(0.1 * (x - 50))), 3));
  }
  return depths;
}

KVARENA_METRIC({.id = "needle_grid",
                .title = "Needle grid",
                .kind = MetricKind::protocol,
                .unit = "tokens or per cent",
                .table_scale = 1,
                .summary = "Context lengths and depths of a needle heat map.",
                .source = "gkamradt/LLMTest_NeedleInAHaystack @7b90d285",
                .vectors = {{"niah_grid", recompute}}});

}  // namespace kvarena::metrics
