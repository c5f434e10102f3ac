#include "reports/reproduced.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reports/best_samples.h"
#include "reports/between_settings.h"
#include "reports/byte_classes.h"
#include "reports/metric_look.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

using results::PublishedValue;
using results::Statistic;

/// The setting of the best mean.
std::string best_of(const ExperimentData& data, const std::vector<std::string>& settings, const std::string& workload,
                    const std::string& metric) {
  const double sign = look_of(data, metric).better == Better::lower ? -1 : 1;
  std::string best = settings.front();
  double most = NAN;
  for (const std::string& setting : settings) {
    Ours one = values_for(data, setting, workload, metric);
    const std::vector<double> values = numbers_of(one);
    if (values.empty() || sign * metrics::mean_of(values) <= most) continue;
    most = sign * metrics::mean_of(values);
    best = setting;
  }
  return best;
}

/// Sets what stands beside the baseline's values of the workload, or those of the best rival.
void compare_with(const std::string& rival, const ExperimentData& data, Statistic statistic, const std::string& metric,
                  const std::vector<double>& values, Ours& ours) {
  Ours base = values_for(data, rival, ours.cell->row.cell.workload, metric);
  const std::vector<double> theirs = numbers_of(base);
  const bool drops = statistic == Statistic::median_drop || statistic == Statistic::drop_variation;
  const std::vector<double> lost =
      theirs.empty() || !drops ? std::vector<double>() : sample_drops(*ours.cell, *base.cell, metric);
  const double over = theirs.empty() ? 0 : metrics::mean_of(theirs);
  const double mean = metrics::mean_of(values);
  if (drops ? lost.empty() : over == 0 || (mean == 0 && statistic == Statistic::reduction)) {
    ours.missing = fmt::format("no value of {} to hold it against", rival);
  } else if (statistic == Statistic::median_drop) {
    ours.value = metrics::percentile(lost, 50);
  } else if (statistic == Statistic::drop_variation) {
    ours.value = variation_of(lost);
  } else {
    ours.value = statistic == Statistic::reduction ? over / mean : mean / over - (statistic == Statistic::gain ? 1 : 0);
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
  if (printed.statistic == equal_time_load) return load_at_equal_time(data, printed, workload);
  const std::string metric = metric_of(data, printed.metric, workload);
  const bool of_all = printed.statistic == best_ratio_variation;
  const std::string method = of_all ? data.baseline() : best_of(data, settings_of(data, printed), workload, metric);
  Ours ours = values_for(data, method, workload, metric);
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
    compare_with(best_of(data, rivals_of(data, printed), workload, metric), data, printed.statistic, metric, values,
                 ours);
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

}  // namespace

Ours ours_of(const ExperimentData& data, const PublishedValue& printed) {
  using enum Statistic;
  if (printed.statistic == best_for) return share_best_for(data, printed);
  constexpr std::array kBetween = {equal_quality, equal_time, equal_rate, near_reduction};
  if (std::ranges::find(kBetween, printed.statistic) != kBetween.end()) return beside_settings(data, printed);
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
  all.value = printed.statistic == minimum ? std::ranges::min(values) : metrics::mean_of(values);
  return all;
}

}  // namespace kvarena::reports
