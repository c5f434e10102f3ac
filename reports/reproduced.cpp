#include "reports/reproduced.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "metrics/stored_metrics.h"
#include "reports/best_samples.h"
#include "reports/byte_classes.h"
#include "reports/equal_quality.h"
#include "reports/metric_look.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

using results::CellKind;
using results::PublishedValue;
using results::Statistic;

constexpr const char* kNoValue = "no value here";

/// The values that a printed one speaks of: of quality cells, then timed, then served, then modelled.
Ours values_for(const ExperimentData& data, const std::string& method, const std::string& workload,
                const std::string& metric) {
  Ours ours;
  for (const CellKind kind : {CellKind::quality, CellKind::timing, CellKind::serving}) {
    const CellData* cell = data.find(method, workload, kind);
    if (cell == nullptr) continue;
    if (ours.cell == nullptr) ours.cell = cell;
    if (metric == metrics::kPromptLength.name && kind != CellKind::serving)
      return {.cell = cell, .values = &cell->prompt_lengths};
    for (const std::string& name : {metric, modelled(metric)}) {
      const auto found = cell->values.find(name);
      if (cell->counts() && found != cell->values.end()) return {.cell = cell, .values = &found->second};
    }
  }
  return ours;
}

/// The numbers of values_for(); none with a reason where there are none, or where they are of several loads.
std::vector<double> numbers_of(Ours& ours) {
  std::vector<double> values;
  if (ours.values != nullptr) {
    for (const results::ValueRow& row : ours.values->rows) values.push_back(row.value);
  }
  values = finite(std::move(values));
  if (values.size() > 1 && ours.cell->row.cell.kind == CellKind::serving) {
    ours.missing = fmt::format("of one load, {} were run", values.size());
    return {};
  }
  if (values.empty()) ours.missing = kNoValue;
  return values;
}

/// The metric that is printed: a workload's own where none is named.
std::string metric_of(const ExperimentData& data, const PublishedValue& printed, const std::string& workload) {
  return printed.metric == results::kAnyScore ? primary_metric(data, workload) : printed.metric;
}

/// Brings a number of ours to the printed unit.
void change_unit(const std::string& stored, const std::string& printed, Ours& ours) {
  const std::optional<UnitChange> change = unit_change(stored, printed);
  if (!change) {
    const auto words = [](const std::string& unit) { return unit.empty() ? "plain numbers" : unit; };
    ours.missing = fmt::format("printed in {}, stored in {}", words(printed), words(stored));
    return;
  }
  ours.value = (*change)(ours.value);
  if (ours.interval) ours.interval = {(*change)(ours.interval->low), (*change)(ours.interval->high)};
}

/// Sets what stands beside the baseline's values of the workload.
void compare_with_baseline(const ExperimentData& data, Statistic statistic, const std::string& metric,
                           const std::vector<double>& values, Ours& ours) {
  Ours base = values_for(data, data.baseline(), ours.cell->row.cell.workload, metric);
  const std::vector<double> theirs = numbers_of(base);
  const bool drops = statistic == Statistic::median_drop || statistic == Statistic::drop_variation;
  const std::vector<double> lost =
      theirs.empty() || !drops ? std::vector<double>() : sample_drops(*ours.cell, *base.cell, metric);
  const double over = theirs.empty() ? 0 : metrics::mean_of(theirs);
  const double mean = metrics::mean_of(values);
  if (drops ? lost.empty() : over == 0 || (mean == 0 && statistic == Statistic::reduction)) {
    ours.missing = fmt::format("no value of {} to hold it against", data.baseline());
  } else if (statistic == Statistic::median_drop) {
    ours.value = metrics::percentile(lost, 50);
  } else if (statistic == Statistic::drop_variation) {
    ours.value = variation_of(lost);
  } else {
    ours.value = statistic == Statistic::relative ? mean / over : over / mean;
  }
}

/// Sets the variation of what is best removed, of all methods.
void vary_best_ratio(const ExperimentData& data, const std::string& workload, const std::string& metric, Ours& ours) {
  std::vector<double> removed = best_shares(data, workload, metric);
  for (double& share : removed) share = 1 - share;
  ours.samples = removed.size();
  if (removed.size() < 2) {
    ours.missing = "fewer than two samples that all methods answered";
  } else {
    ours.value = variation_of(removed);
  }
}

/// Ours of one workload.
Ours of_workload(const ExperimentData& data, const PublishedValue& printed, const std::string& workload) {
  using enum Statistic;
  const std::string metric = metric_of(data, printed, workload);
  const bool of_all = printed.statistic == best_ratio_variation;
  Ours ours = values_for(data, of_all ? data.baseline() : printed.method, workload, metric);
  const std::vector<double> values = numbers_of(ours);
  if (values.empty()) {
    if (printed.workload == results::kAllWorkloads && ours.missing == kNoValue)
      ours.missing = "no value of " + workload;
    return ours;
  }
  ours.samples = values.size();
  const bool beside_others = printed.statistic != mean && printed.statistic != minimum;
  if (of_all) {
    vary_best_ratio(data, workload, metric, ours);
  } else if (beside_others) {
    compare_with_baseline(data, printed.statistic, metric, values, ours);
  } else if (printed.statistic == minimum) {
    ours.value = std::ranges::min(values);
  } else {
    const metrics::MeanEstimate estimate = metrics::bootstrap_mean(values, resampling_for(values.size()));
    ours.value = estimate.mean;
    if (values.size() > 1) ours.interval = estimate.interval;
  }
  if (!ours.missing.empty()) return ours;
  if (std::isnan(ours.value)) ours.missing = "no variation of one sample, or about 0";
  change_unit(beside_others ? "fraction" : ours.values->unit, printed.unit, ours);
  return ours;
}

/// Workloads that a printed value speaks of.
std::vector<std::string> workloads_of(const ExperimentData& data, const PublishedValue& printed) {
  return printed.workload == results::kAllWorkloads ? data.workloads() : std::vector<std::string>{printed.workload};
}

/// Notes a workload's cell: the first, or the first of project-made samples.
void note_cell(const Ours& one, Ours& all) {
  if (one.cell == nullptr) return;
  if (all.cell == nullptr || !all.cell->row.cell.workload.ends_with(kInventedLabel)) all.cell = one.cell;
  all.values = one.values;
}

/// The share of samples that the method is best for, of the methods that keep about as many bytes.
Ours share_best_for(const ExperimentData& data, const PublishedValue& printed) {
  Ours ours;
  const std::vector<std::string> workloads = workloads_of(data, printed);
  for (const std::string& workload : workloads)
    note_cell(values_for(data, printed.method, workload, printed.metric), ours);
  const std::map<std::string, int> classes = byte_classes(data);
  const auto own = classes.find(printed.method);
  if (ours.values == nullptr || own == classes.end()) {
    ours.missing = kNoValue;
    return ours;
  }
  std::vector<std::string> rivals;
  for (const auto& [method, number] : classes) {
    if (number == own->second) rivals.push_back(method);
  }
  const ExperimentData part = data.of_cells(
      [&](const CellData& cell) { return std::ranges::find(workloads, cell.row.cell.workload) != workloads.end(); });
  BestFor best = best_for(part, rivals, printed.metric);
  ours.samples = static_cast<size_t>(best.samples);
  if (rivals.size() < 2 || best.samples == 0) {
    ours.missing = "no other method with about as many bytes";
  } else {
    ours.value = best.counts[printed.method] / best.samples;
    change_unit("fraction", printed.unit, ours);
  }
  return ours;
}

/// A setting's time and quality, means over workloads.
struct Setting {
  double time = 0, quality = 0;
};

/// Metrics of a setting's time and quality, for a printed one of either: of a load, or timed beside scored answers.
struct Axes {
  std::string time, quality;
};

Axes axes_of(const PublishedValue& printed, const Ours& own) {
  const bool served = own.cell->row.cell.kind == CellKind::serving;
  if (printed.statistic == Statistic::equal_quality)
    return {printed.metric, std::string(served ? metrics::kServedScore.name : results::kAnyScore)};
  return {served ? metrics::kTimeToFirstTokenSpread.mean.name : metrics::kTimeToFirstTokenMs.name, printed.metric};
}

/// Nothing where a workload lacks one of the two; notes cells in `ours`.
std::optional<Setting> setting_of(const ExperimentData& data, const PublishedValue& printed, const std::string& method,
                                  const Axes& axes, Ours& ours) {
  Setting setting;
  const std::vector<std::string> workloads = workloads_of(data, printed);
  for (const std::string& workload : workloads) {
    const std::string score = axes.quality == results::kAnyScore ? primary_metric(data, workload) : axes.quality;
    Ours time = values_for(data, method, workload, axes.time), quality = values_for(data, method, workload, score);
    const std::vector<double> times = numbers_of(time), qualities = numbers_of(quality);
    if (times.empty() || qualities.empty()) {
      ours.missing = fmt::format("{}: {}", method, times.empty() ? time.missing : quality.missing);
      return std::nullopt;
    }
    note_cell(time, ours);
    setting.time += metrics::mean_of(times) / static_cast<double>(workloads.size());
    setting.quality += metrics::mean_of(qualities) / static_cast<double>(workloads.size());
  }
  return setting;
}

/// The time of other settings at the method's quality over its own, or its quality over theirs at its time, less 1.
Ours beside_settings(const ExperimentData& data, const PublishedValue& printed) {
  Ours ours = values_for(data, printed.method, workloads_of(data, printed).front(), printed.metric);
  if (numbers_of(ours).empty()) return ours;
  ours.samples = 1;
  const Axes axes = axes_of(printed, ours);
  const std::optional<Setting> own = setting_of(data, printed, printed.method, axes, ours);
  if (!own) return ours;
  const bool at_quality = printed.statistic == Statistic::equal_quality;
  std::vector<ScatterPoint> points;
  std::vector<std::string> others = printed.against;
  if (others.empty()) others.push_back(data.baseline());
  for (const std::string& other : others) {
    const std::optional<Setting> setting = setting_of(data, printed, other, axes, ours);
    if (!setting) return ours;
    // At equal time the axes change places, so that less of one is better and more of the other is again.
    points.push_back({.series = "others",
                      .x = at_quality ? setting->time : -setting->quality,
                      .y = at_quality ? setting->quality : -setting->time});
  }
  const std::optional<double> at = x_at_quality(points, "others", at_quality ? own->quality : -own->time);
  const double under = at_quality ? own->time : -at.value_or(0);
  if (!at || under == 0) {
    ours.missing = fmt::format("no two of the others lie around its {}", at_quality ? "quality" : "time");
  } else {
    ours.value = at_quality ? *at / own->time : own->quality / under - 1;
    change_unit("fraction", printed.unit, ours);
  }
  return ours;
}

}  // namespace

Ours ours_of(const ExperimentData& data, const PublishedValue& printed) {
  if (printed.statistic == Statistic::best_for) return share_best_for(data, printed);
  if (printed.statistic == Statistic::equal_quality || printed.statistic == Statistic::equal_time)
    return beside_settings(data, printed);
  if (printed.workload != results::kAllWorkloads) return of_workload(data, printed, printed.workload);
  Ours all;
  std::vector<double> values;
  for (const std::string& workload : data.workloads()) {
    const Ours one = of_workload(data, printed, workload);
    if (!one.missing.empty()) return one;
    values.push_back(one.value);
    all.samples += one.samples;
    note_cell(one, all);
  }
  if (values.empty()) return {.missing = kNoValue};
  all.value = printed.statistic == Statistic::minimum ? std::ranges::min(values) : metrics::mean_of(values);
  return all;
}

}  // namespace kvarena::reports
