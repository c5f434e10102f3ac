#include "reports/report_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "metrics/stored_metrics.h"
#include "reports/chart_specs.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

/// Values of the series `name` at each step or layer, or their sums up to there, over all samples of all workloads of a
/// method.
std::vector<std::vector<double>> by_step(const ExperimentData& data, const std::string& method, const std::string& name,
                                         bool summed = false) {
  std::vector<std::vector<double>> steps;
  for (const CellData& cell : data.cells) {
    const auto series = cell.series->find(name);
    if (cell.row.cell.method != method || cell.row.cell.kind != results::CellKind::quality || !cell.counts() ||
        series == cell.series->end())
      continue;
    for (const results::SeriesRow& row : series->second) {
      if (steps.size() < row.series.values.size()) steps.resize(row.series.values.size());
      double sum = 0;
      for (size_t i = 0; i < row.series.values.size(); ++i) {
        const double value = row.series.values[i];
        sum += value;
        if (std::isfinite(summed ? sum : value)) steps[i].push_back(summed ? sum : value);
      }
    }
  }
  return steps;
}

constexpr size_t kFewest = 5;  // samples that still run; fewer make a jumpy tail
constexpr double kMebibyte = 1024 * 1024;
constexpr const char* kBytes = metrics::kKeptBytesFraction.name;

/// Mean KL of each method by step, or summed up to it, as far as enough samples go.
std::vector<LineSeries> kl_lines(const ExperimentData& data, bool summed) {
  std::vector<LineSeries> lines;
  std::vector<std::vector<std::vector<double>>> steps;  // by line
  for (const std::string& method : data.methods()) {
    lines.push_back({.label = method, .baseline = method == data.baseline()});
    steps.push_back(by_step(data, method, metrics::kKlNats.name, summed));
    const size_t enough = steps.back().empty() ? 0 : std::min(kFewest, steps.back().front().size());
    const auto few = [&](const std::vector<double>& step) { return step.size() < std::max<size_t>(enough, 1); };
    steps.back().erase(std::ranges::find_if(steps.back(), few), steps.back().end());
  }
  size_t longest = 0;
  for (const auto& line : steps) longest = std::max(longest, line.size());
  for (size_t step = 0; step < longest; ++step) {
    // Methods follow one continuation of each sample, so most have as many samples at a step.
    std::map<size_t, std::pair<std::vector<size_t>, std::vector<std::vector<double>>>> by_samples;
    for (size_t line = 0; line < lines.size(); ++line) {
      if (step >= steps[line].size()) continue;
      auto& [which, values] = by_samples[steps[line][step].size()];
      which.push_back(line);
      values.push_back(std::move(steps[line][step]));
    }
    for (const auto& [samples, of] : by_samples) {
      const auto estimates = metrics::bootstrap_means(
          of.second, {.resamples = std::min<int64_t>(1000, resampling_for(samples).resamples)});
      for (size_t i = 0; i < estimates.size(); ++i) {
        lines[of.first[i]].points.push_back(
            {.x = static_cast<double>(step), .y = estimates[i].mean, .interval = estimates[i].interval});
      }
    }
  }
  return lines;
}

/// The workloads whose metric is printed and read like the first one's, so that a mean over them is one.
std::vector<std::string> workloads_alike(const ExperimentData& data) {
  std::vector<std::string> alike;
  std::optional<MetricLook> first;
  for (const std::string& workload : data.workloads()) {
    MetricLook look = look_of(data, primary_metric(data, workload));
    look.title.clear();
    if (!first) first = look;
    if (look == *first) alike.push_back(workload);
  }
  return alike;
}

/// "qa_f1", or "scores" when several metrics are averaged.
std::string primary_metric_names(const ExperimentData& data, const std::vector<std::string>& workloads) {
  std::set<std::string> names;
  for (const std::string& workload : workloads) names.insert(primary_metric(data, workload));
  return names.size() == 1 ? *names.begin() : "scores";
}

std::string origin_sentence(const std::vector<std::string>& unreal) {
  if (unreal.empty()) return "Bytes are measured, of real allocations.";
  return fmt::format("Bytes are measured but for {}, which simulate or emulate their storage.",
                     fmt::join(unreal, ", "));
}

}  // namespace

std::vector<Chart> kl_charts(const ExperimentData& data) {
  std::vector<Chart> charts;
  for (const bool summed : {false, true}) {
    std::vector<LineSeries> lines = kl_lines(data, summed);
    // Exact methods lie on zero and would only hide under each other.
    std::erase_if(lines, [](const LineSeries& line) {
      return std::ranges::none_of(line.points, [](const auto& point) { return point.y > 0; });
    });
    if (lines.empty()) return {};
    const AxisSpec steps{.title = "step of the full-KV continuation", .whole = true};
    charts.push_back(summed ? line_chart("kl-sum", "KL from full KV, summed up to the step", steps,
                                         {.title = "sum of KL in nats, mean over samples", .zero = true}, lines)
                            : line_chart("kl-growth", "KL from full KV by step", steps,
                                         {.title = "KL in nats, mean over samples", .log = true}, lines));
    charts.back().caption = fmt::format(
        "Measured. Bands are 95% intervals over samples. Steps that fewer than five samples reach, or not all where "
        "there are fewer, are left out{}.",
        summed ? "" : ", and so are those where KL is zero");
  }
  return charts;
}

std::vector<Chart> tier_charts(const ExperimentData& data) {
  using Tier = std::pair<std::string, metrics::StoredSeries>;
  std::vector<LineSeries> lines;
  bool behind = false;
  for (const std::string& method : data.methods()) {
    for (const auto& [tier, bytes] : {Tier{"device", metrics::kDeviceBytes}, Tier{"host", metrics::kHostBytes},
                                      Tier{"disk", metrics::kDiskBytes}}) {
      LineSeries line{.label = fmt::format("{}, {}", method, tier), .baseline = method == data.baseline()};
      const auto steps = by_step(data, method, bytes.name);
      // All of a pass's samples or none: answers of different lengths would bend a mean.
      for (size_t step = 0; step < steps.size() && steps[step].size() == steps[0].size(); ++step) {
        const double sum = std::accumulate(steps[step].begin(), steps[step].end(), 0.0);
        line.points.push_back(
            {.x = static_cast<double>(step), .y = sum / static_cast<double>(steps[step].size()) / kMebibyte});
      }
      if (line.points.size() < 2) continue;
      behind = behind || tier != "device";
      lines.push_back(std::move(line));
    }
  }
  if (!behind) return {};
  Chart chart = line_chart("tier-bytes", "Cache bytes by tier", {.title = "passes after the prompt", .whole = true},
                           {.title = "MiB of the caches of one request, mean over samples", .zero = true}, lines);
  chart.caption = "Counted at allocation. As far as every sample goes.";
  return {chart};
}

std::optional<Chart> layer_chart(const ExperimentData& data, const LayerSeries& what) {
  std::vector<LineSeries> lines;
  for (const std::string& method : data.methods()) {
    LineSeries line{.label = method, .baseline = method == data.baseline()};
    double largest = 0;
    for (const std::vector<double>& values : by_step(data, method, what.series.name)) {
      const double mean = metrics::mean_of(values);
      line.points.push_back({.x = static_cast<double>(line.points.size()), .y = mean});
      largest = std::max(largest, mean);
    }
    if (largest > 0) lines.push_back(std::move(line));
  }
  if (lines.empty()) return std::nullopt;
  return line_chart(what.id, what.title, {.title = "layer", .whole = true}, {.title = what.axis, .zero = true}, lines);
}

std::vector<Chart> trade_off_charts(const ExperimentData& data) {
  const std::vector<std::string> workloads = workloads_alike(data);
  if (workloads.empty()) return {};
  const MetricLook look = look_of(data, primary_metric(data, workloads.front()));
  std::vector<ScatterPoint> points;
  std::vector<std::string> unreal;
  for (const std::string& method : data.methods()) {
    std::vector<double> quality;
    std::vector<double> kept;
    std::string family;
    bool real = true;
    for (const std::string& workload : workloads) {
      const CellData* cell = data.find(method, workload, results::CellKind::quality);
      if (cell == nullptr || !cell->counts()) continue;
      family = cell->row.cell.method_name;
      for (const double x : cell->numbers(primary_metric(data, workload))) quality.push_back(look.scale * x);
      for (const double x : cell->numbers(kBytes)) kept.push_back(100 * x);
      const auto bytes = cell->values->find(kBytes);
      real = real && (bytes == cell->values->end() || bytes->second.storage == results::Storage::real);
    }
    std::erase_if(quality, [](double x) { return !std::isfinite(x); });
    if (quality.empty() || kept.empty()) continue;
    if (!real) unreal.push_back(method);
    const metrics::MeanEstimate estimate = metrics::bootstrap_mean(quality, resampling_for(quality.size()));
    points.push_back({.series = family,
                      .label = method,
                      .x = metrics::mean_of(kept),
                      .y = estimate.mean,
                      .y_interval = estimate.interval,
                      .baseline = method == data.baseline()});
  }
  if (points.size() < 2) return {};
  mark_pareto_front(points, look.better == Better::lower);
  const std::string unit = look.unit.empty() ? "" : ", " + look.unit;
  Chart chart = scatter_chart("trade-off", "Quality against resident bytes", {.title = "resident bytes, % of full KV"},
                              {.title = "mean of " + primary_metric_names(data, workloads) + unit}, points);
  chart.caption = fmt::format(
      "{} and to the left is better; the dashed staircase joins the settings that no other beats in both. {}",
      look.better == Better::lower ? "Down" : "Up", origin_sentence(unreal));
  return {chart};
}

}  // namespace kvarena::reports
