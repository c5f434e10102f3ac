#include "reports/printed_values.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/results/changed_label.h"
#include "metrics/stored_metrics.h"
#include "reports/metric_look.h"
#include "reports/verdict.h"

namespace kvarena::reports {

using results::PublishedValue;

Ours values_for(const ExperimentData& data, const std::string& method, const std::string& workload,
                const std::string& metric) {
  Ours ours;
  for (const results::CellKind kind :
       {results::CellKind::quality, results::CellKind::timing, results::CellKind::serving}) {
    const CellData* cell = data.find(method, workload, kind);
    if (cell == nullptr) continue;
    if (ours.cell == nullptr) ours.cell = cell;
    if (metric == metrics::kPromptLength.name && kind != results::CellKind::serving)
      return {.cell = cell, .values = &*cell->prompt_lengths};
    for (const std::string& name : {metric, modelled(metric)}) {
      const auto found = cell->values->find(name);
      if (cell->counts() && found != cell->values->end()) return {.cell = cell, .values = &found->second};
    }
  }
  return ours;
}

std::vector<double> numbers_of(Ours& ours) {
  std::vector<double> values;
  if (ours.values != nullptr) {
    for (const results::ValueRow& row : ours.values->rows) values.push_back(row.value);
  }
  values = finite(std::move(values));
  if (values.size() > 1 && ours.cell->row.cell.kind == results::CellKind::serving) {
    const bool rate = ours.values->metric == metrics::kServedRequestsPerS.name;
    if (rate) return {std::ranges::max(values)};
    ours.missing = fmt::format("of one load, {} were run", values.size());
    return {};
  }
  if (values.empty()) ours.missing = kNoValue;
  return values;
}

std::string metric_of(const ExperimentData& data, const std::string& metric, const std::string& workload) {
  return metric == results::kAnyScore ? primary_metric(data, workload) : metric;
}

std::vector<std::string> workloads_of(const ExperimentData& data, const PublishedValue& printed) {
  return printed.workload == results::kAllWorkloads ? data.workloads() : std::vector<std::string>{printed.workload};
}

std::vector<std::string> settings_of(const ExperimentData& data, const PublishedValue& printed) {
  std::vector<std::string> settings = results::labels_fitting(data.methods(), printed.method);
  if (settings.empty()) settings.push_back(printed.method);
  return settings;
}

std::vector<std::string> rivals_of(const ExperimentData& data, const PublishedValue& printed) {
  return printed.against.empty() ? std::vector<std::string>{data.baseline()} : printed.against;
}

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

void note_cell(const Ours& one, Ours& all) {
  if (one.cell == nullptr) return;
  if (all.cell == nullptr || !all.cell->row.cell.workload.ends_with(kInventedLabel)) all.cell = one.cell;
  all.values = one.values;
}

}  // namespace kvarena::reports
