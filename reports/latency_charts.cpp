#include "reports/latency_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "reports/chart_specs.h"
#include "reports/emulated.h"
#include "reports/equal_quality.h"
#include "reports/metric_look.h"
#include "reports/pooled.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

/// The mean over all samples of a method's cells of one kind; nothing when there are none.
std::optional<double> mean_over(const ExperimentData& data, const std::string& method, results::CellKind kind,
                                const std::string& metric) {
  const std::vector<double> all = pool_of(data, method, kind, metric).values;
  return all.empty() ? std::nullopt : std::optional(metrics::mean_of(all));
}

struct Part {
  const char* metric;
  const char* title;
};

// Methods that reuse entries time what they do in place of a prefill; of the others compressing follows it. Entries are
// loaded while tokens are scored and chosen, so of loading only what goes on after that has a part.
constexpr Part kReuseParts[] = {
    {metrics::kScoreMs.name, "score"}, {metrics::kAlignMs.name, "align"}, {metrics::kPrefillMs.name, "prefill"}};
constexpr Part kParts[] = {{metrics::kPrefillMs.name, "prefill"}, {metrics::kCompressMs.name, "compress"}};

void add_parts(std::vector<BarValue>& bars, const ExperimentData& data, const std::string& method) {
  const auto mean = [&](const char* metric) { return mean_over(data, method, results::CellKind::timing, metric); };
  const char* const whole = metrics::kTimeToFirstTokenMs.name;
  const std::optional<double> total = mean(whole);
  if (!total) return;
  const bool emulated = is_emulated(data, method, results::CellKind::timing, whole);
  const auto add_part = [&](const char* title, double value) {
    if (value > 0) bars.push_back({.category = method, .part = title, .value = value, .emulated = emulated});
  };
  double told = 0;
  const auto add = [&](std::span<const Part> parts) {
    for (const Part& part : parts) {
      const double value = mean(part.metric).value_or(0);
      told += value;
      add_part(part.title, value);
    }
  };
  if (const auto load = mean(metrics::kLoadMs.name)) {
    const double hidden = mean(metrics::kScoreMs.name).value_or(0) + mean(metrics::kAlignMs.name).value_or(0);
    const double rest = *load - hidden;
    told += std::max(rest, 0.0);
    add_part("load not hidden", rest);
    add(kReuseParts);
  } else {
    add(kParts);
  }
  add_part("rest", *total - told);
}

/// The mean of each workload's own metric, in the unit that tables print, where all workloads are read alike.
std::optional<double> quality_of(const ExperimentData& data, const std::string& method) {
  std::vector<double> all;
  for (const std::string& workload : data.workloads()) {
    const CellData* cell = data.find(method, workload, results::CellKind::quality);
    if (cell == nullptr || !cell->counts()) continue;
    const std::string metric = primary_metric(data, workload);
    const double scale = look_of(data, metric).scale;
    for (const double value : finite(cell->numbers(metric))) all.push_back(scale * value);
  }
  return all.empty() ? std::nullopt : std::optional(metrics::mean_of(all));
}

bool workloads_read_alike(const ExperimentData& data) {
  std::vector<MetricLook> looks;
  for (const std::string& workload : data.workloads()) {
    looks.push_back(look_of(data, primary_metric(data, workload)));
    looks.back().title.clear();
  }
  return !looks.empty() && std::ranges::all_of(looks, [&](const MetricLook& look) { return look == looks.front(); });
}

std::vector<double> waits(const CellData& cell, const std::string& point) {
  const auto series = cell.series->find(metrics::kTimeToFirstTokenMs.name);
  if (series == cell.series->end()) return {};
  std::vector<double> all;
  for (const results::SeriesRow& row : series->second) {
    if (row.sample_id == point) all.insert(all.end(), row.series.values.begin(), row.series.values.end());
  }
  return finite(std::move(all));
}

}  // namespace

std::vector<Chart> first_token_charts(const ExperimentData& data) {
  std::vector<BarValue> bars;
  for (const std::string& method : data.methods()) add_parts(bars, data, method);
  if (bars.empty()) return {};
  Chart chart = bar_chart("first-token", "Time to the first token, in parts", {.title = "ms, mean over samples"}, bars,
                          BarLayout::stacked);
  chart.caption = "Measured, medians over repeats. Rest: copying the prompt's cache and what no part accounts for.";
  return {chart};
}

void add_quality_speed(const ExperimentData& data, bool first_token, Section& section) {
  if (!workloads_read_alike(data)) return;
  const MetricLook look = look_of(data, primary_metric(data, data.workloads().front()));
  const std::string quality = "mean of scores" + (look.unit.empty() ? "" : ", " + look.unit);
  const Part axes[] = {{metrics::kTimeToFirstTokenMs.name, "time to the first token, ms"},
                       {metrics::kInterTokenLatencyMs.name, "time of a token, ms"}};
  size_t number = 0;
  for (const Part& axis : std::span(axes).subspan(first_token ? 0 : 1)) {
    std::vector<ScatterPoint> points;
    for (const std::string& method : data.methods()) {
      const auto x = mean_over(data, method, results::CellKind::timing, axis.metric), y = quality_of(data, method);
      if (!x || !y) continue;
      const CellData* cell = data.find(method, data.workloads().front(), results::CellKind::timing);
      points.push_back({.series = cell == nullptr ? method : cell->row.cell.method_name,
                        .label = method,
                        .x = *x,
                        .y = *y,
                        .baseline = method == data.baseline(),
                        .emulated = is_emulated(data, method, results::CellKind::timing, axis.metric)});
    }
    if (points.size() < 2) continue;
    ++number;
    section.charts.push_back(scatter_chart(fmt::format("trade-off-{}", number),
                                           fmt::format("Quality against {}", axis.title), {.title = axis.title},
                                           {.title = quality}, points));
    section.charts.back().caption =
        "Measured, medians over repeats; the table says which times differ beyond their spread.";
    if (look.better == Better::lower) continue;
    if (auto table = equal_quality_table(fmt::format("equal-quality-{}", number), axis.title, quality, points))
      section.tables.push_back(std::move(*table));
  }
}

std::vector<Chart> latency_distribution_charts(const ExperimentData& data) {
  std::map<std::pair<std::string, std::string>, std::vector<LineSeries>> lines;  // by workload and point
  for (const CellData& cell : data.cells) {
    if (cell.row.cell.kind != results::CellKind::serving || !cell.counts()) continue;
    const auto series = cell.series->find(metrics::kTimeToFirstTokenMs.name);
    if (series == cell.series->end()) continue;
    for (const results::SeriesRow& row : series->second) {
      std::vector<double> times = waits(cell, row.sample_id);
      if (times.size() < 2) continue;
      LineSeries line{.label = cell.row.cell.method,
                      .points = cumulative_points(std::move(times)),
                      .baseline = cell.row.cell.method == data.baseline(),
                      .emulated = is_emulated(cell, metrics::kTimeToFirstTokenMs.name)};
      lines[{cell.row.cell.workload, row.sample_id}].push_back(std::move(line));
    }
  }
  std::vector<Chart> charts;
  for (const auto& [place, series] : lines) {
    charts.push_back(line_chart(fmt::format("latency-{}", charts.size() + 1),
                                fmt::format("Times to first tokens, {}, load {}", place.first, place.second),
                                {.title = "ms, queueing included"},
                                {.title = "% of requests that had one by then", .zero = true}, series));
    charts.back().caption = "Measured.";
  }
  return charts;
}

}  // namespace kvarena::reports
