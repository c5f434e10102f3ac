#include "reports/between_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/stored_metrics.h"
#include "reports/equal_quality.h"
#include "reports/serving_points.h"

namespace kvarena::reports {
namespace {

using results::PublishedValue;
using results::Statistic;

constexpr const char* kOthers = "others";

/// A setting's cost, a time or what is less the faster it is, and quality, means over workloads.
struct Setting {
  double cost = 0, quality = 0;
};

/// Metrics of a setting's cost and quality, for a printed one of either: of a load, or timed beside scored answers.
struct Axes {
  std::string cost, quality;
  double sign = 1;  // -1 of a rate
};

Axes axes_of(const PublishedValue& printed, const Ours& own) {
  const bool served = own.cell->row.cell.kind == results::CellKind::serving;
  switch (printed.statistic) {
    case Statistic::equal_rate: return {metrics::kThroughputTokensPerS.name, printed.metric, -1};
    case Statistic::equal_time:
      return {served ? metrics::kTimeToFirstTokenSpread.mean.name : metrics::kTimeToFirstTokenMs.name, printed.metric};
    default: return {printed.metric, std::string(served ? metrics::kServedScore.name : results::kAnyScore)};
  }
}

/// Nothing where a workload lacks one of the two; notes cells in `ours`.
std::optional<Setting> setting_of(const ExperimentData& data, const PublishedValue& printed, const std::string& method,
                                  const Axes& axes, Ours& ours) {
  Setting setting;
  const std::vector<std::string> workloads = workloads_of(data, printed);
  for (const std::string& workload : workloads) {
    const std::string score = metric_of(data, axes.quality, workload);
    Ours cost = values_for(data, method, workload, axes.cost), quality = values_for(data, method, workload, score);
    const std::vector<double> costs = numbers_of(cost), qualities = numbers_of(quality);
    if (costs.empty() || qualities.empty()) {
      ours.missing = fmt::format("{}: {}", method, costs.empty() ? cost.missing : quality.missing);
      return std::nullopt;
    }
    note_cell(cost, ours);
    setting.cost += axes.sign * metrics::mean_of(costs) / static_cast<double>(workloads.size());
    setting.quality += metrics::mean_of(qualities) / static_cast<double>(workloads.size());
  }
  return setting;
}

/// One Setting for each method; none where one has none.
std::vector<Setting> settings_for(const ExperimentData& data, const PublishedValue& printed,
                                  const std::vector<std::string>& methods, const Axes& axes, Ours& ours) {
  std::vector<Setting> settings;
  for (const std::string& method : methods) {
    const std::optional<Setting> one = setting_of(data, printed, method, axes, ours);
    if (!one) return {};
    settings.push_back(*one);
  }
  return settings;
}

/// The cost of the others at a quality.
std::optional<double> cost_at(const std::vector<Setting>& others, double quality) {
  std::vector<ScatterPoint> points;
  for (const Setting& each : others) points.push_back({.series = kOthers, .x = each.cost, .y = each.quality});
  return x_at_quality(points, kOthers, quality);
}

/// The quality of the others at a cost: the axes change places, so that less of one is better and more of the other is
/// again.
std::optional<double> quality_at(const std::vector<Setting>& others, double cost) {
  std::vector<ScatterPoint> points;
  for (const Setting& each : others) points.push_back({.series = kOthers, .x = -each.quality, .y = -each.cost});
  const std::optional<double> found = x_at_quality(points, kOthers, -cost);
  return found ? std::optional(-*found) : std::nullopt;
}

/// The least cost of the others over that of the cheapest setting that loses at most 3% of their quality.
std::optional<double> reduction_within(const std::vector<Setting>& own, const std::vector<Setting>& others) {
  constexpr double kKept = 0.97;
  const Setting& rival = *std::ranges::min_element(others, {}, &Setting::cost);
  std::optional<double> most;
  for (const Setting& each : own) {
    if (each.quality >= kKept * rival.quality && rival.cost / each.cost > most.value_or(0))
      most = rival.cost / each.cost;
  }
  return most;
}

/// A latency's points over the load, negative so that less load and more of a latency are worse, of some settings.
void add_curve(const ExperimentData& data, const std::vector<std::string>& methods, const std::string& workload,
               const std::string& metric, const std::string& series, std::vector<ScatterPoint>& points) {
  for (const std::string& method : methods) {
    const CellData* cell = data.find(method, workload, results::CellKind::serving);
    if (cell == nullptr || !cell->counts()) continue;
    const double target = score_target(cell->row.cell);
    for (const std::string& point : points_of(*cell)) {
      const double load = value_of(*cell, metrics::kOfferedRequestsPerS.name, point);
      const double latency = value_of(*cell, metric, point);
      const bool reaches = std::isnan(target) || value_of(*cell, metrics::kServedScore.name, point) >= target;
      if (reaches && std::isfinite(load) && std::isfinite(latency))
        points.push_back({.series = series, .x = -load, .y = -latency});
    }
  }
}

}  // namespace

Ours beside_settings(const ExperimentData& data, const PublishedValue& printed) {
  const std::vector<std::string> methods = settings_of(data, printed);
  Ours ours = values_for(data, methods.front(), workloads_of(data, printed).front(), printed.metric);
  if (numbers_of(ours).empty()) return ours;
  ours.samples = 1;
  const std::string stored = ours.values->unit;
  const Axes axes = axes_of(printed, ours);
  const std::vector<Setting> own = settings_for(data, printed, methods, axes, ours);
  if (own.empty()) return ours;
  const std::vector<Setting> others = settings_for(data, printed, rivals_of(data, printed), axes, ours);
  if (others.empty()) return ours;
  const Setting& one = own.front();
  std::optional<double> found;
  if (printed.statistic == Statistic::near_reduction) {
    found = reduction_within(own, others);
    if (!found) ours.missing = "no setting loses at most 3%";
  } else if (printed.statistic == Statistic::equal_quality) {
    found = cost_at(others, one.quality);
    if (found) found = *found / one.cost;
    if (!found) ours.missing = "no two of the others lie around its quality";
  } else {
    const bool rate = printed.statistic == Statistic::equal_rate;
    found = quality_at(others, one.cost);
    if (found) found = rate ? one.quality - *found : one.quality / *found - 1;
    if (!found || !std::isfinite(*found))
      ours.missing = fmt::format("no two of the others lie around its {}", rate ? "rate" : "time");
  }
  ours.value = found.value_or(0);
  if (ours.missing.empty())
    change_unit(printed.statistic == Statistic::equal_rate ? stored : "fraction", printed.unit, ours);
  return ours;
}

Ours load_at_equal_time(const ExperimentData& data, const PublishedValue& printed, const std::string& workload) {
  constexpr const char* kOwn = "own";
  const std::vector<std::string> methods = settings_of(data, printed);
  Ours ours = values_for(data, methods.front(), workload, printed.metric);
  std::vector<ScatterPoint> points;
  add_curve(data, methods, workload, printed.metric, kOwn, points);
  add_curve(data, rivals_of(data, printed), workload, printed.metric, kOthers, points);
  std::vector<double> ratios;
  for (const ScatterPoint& point : points) {
    const std::optional<double> own = x_at_quality(points, kOwn, point.y);
    const std::optional<double> others = x_at_quality(points, kOthers, point.y);
    if (own && others) ratios.push_back(*own / *others);
  }
  ours.samples = ratios.size();
  if (ratios.empty()) {
    ours.missing = ours.values == nullptr ? kNoValue : "no latency that both reach";
  } else {
    ours.value = metrics::mean_of(ratios);
    change_unit("fraction", printed.unit, ours);
  }
  return ours;
}

}  // namespace kvarena::reports
