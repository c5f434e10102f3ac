#include "reports/ranked_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "metrics/stored_metrics.h"
#include "reports/sections.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

constexpr const char* kShare = metrics::kKeptBytesFraction.name;
constexpr const char* kResident = metrics::kResidentBytes.name;
constexpr const char* kSliding = metrics::kSlidingBytes.name;
constexpr const char* kDistance = metrics::kKlNats.name;

std::string method_of(const results::CellRecord& cell, const nlohmann::json& settings) {
  const nlohmann::json over = settings.value("over", nlohmann::json());
  const std::string below = over.is_object() ? over.value("name", "") : "";
  return below.empty() ? cell.method_name : fmt::format("{} over {}", cell.method_name, below);
}

std::string protection_of(const nlohmann::json& settings) {
  const int64_t sinks = settings.value("protect_sinks", int64_t{0}),
                newest = settings.value("protect_window", int64_t{0});
  return sinks == 0 && newest == 0 ? "" : fmt::format("{} sinks and the {} newest protected", sinks, newest);
}

/// A setting without values.
Setting setting_of(const results::CellRecord& cell) {
  nlohmann::json settings = nlohmann::json::parse(cell.settings_json, nullptr, false);
  if (!settings.is_object()) settings = nlohmann::json::object();
  return {.label = cell.method, .method = method_of(cell, settings), .protection = protection_of(settings)};
}

/// Finite values of a metric by sample.
std::map<std::string, double> by_sample(const CellData& cell, const char* metric) {
  std::map<std::string, double> values;
  if (!cell.values->contains(metric)) return values;
  for (const results::ValueRow& row : cell.values->at(metric).rows) {
    if (std::isfinite(row.value)) values[row.sample_id] = row.value;
  }
  return values;
}

/// Appends each sample's share of full KV's bytes in layers without a window: methods leave the others alone.
void append_shares(std::vector<double>& shares, const CellData& cell, const CellData* baseline) {
  const std::map<std::string, double> sliding = by_sample(cell, kSliding), resident = by_sample(cell, kResident);
  const std::map<std::string, double> sliding_of_full = baseline == nullptr ? sliding : by_sample(*baseline, kSliding);
  for (const auto& [sample, share] : by_sample(cell, kShare)) {
    if (!sliding.contains(sample) || !sliding_of_full.contains(sample)) {
      shares.push_back(share);
      continue;
    }
    const double held = resident.at(sample), full = held / share;
    shares.push_back((held - sliding.at(sample)) / (full - sliding_of_full.at(sample)));
  }
}

}  // namespace

std::vector<const Samples*> Setting::in(const std::string& workload) const {
  std::vector<const Samples*> all;
  for (const auto& [name, samples] : by_workload) {
    if (workload.empty() || name == workload) all.push_back(&samples);
  }
  return all;
}

std::vector<double> Setting::distances(const std::string& workload) const {
  std::vector<double> all;
  for (const Samples* samples : in(workload)) {
    for (const auto& [sample, distance] : *samples) all.push_back(distance);
  }
  return all;
}

std::vector<Setting> settings_of(const ExperimentData& data) {
  std::vector<Setting> all;
  const std::string baseline = data.baseline();
  for (const CellData& cell : data.cells) {
    if (cell.row.cell.kind != results::CellKind::quality || cell.row.cell.baseline) continue;
    const std::string& label = cell.row.cell.method;
    auto found = std::ranges::find(all, label, &Setting::label);
    if (found == all.end()) found = all.insert(all.end(), setting_of(cell.row.cell));
    if (const auto state = state_cell(&cell)) {
      found->failure = state->reason;
      continue;
    }
    const std::string& workload = cell.row.cell.workload;
    append_shares(found->shares, cell, data.find(baseline, workload, results::CellKind::quality));
    found->by_workload[workload] = by_sample(cell, kDistance);
  }
  return all;
}

Chosen choose(const std::vector<Setting>& settings, const Budget& budget) {
  std::map<std::string, const Setting*> within, least;
  for (const Setting& setting : settings) {
    if (!setting.complete()) continue;
    const Setting*& smallest = least[setting.method];
    if (smallest == nullptr || setting.share() < smallest->share()) smallest = &setting;
    if (setting.share() <= budget.above || setting.share() > budget.share) continue;
    const Setting*& largest = within[setting.method];
    if (largest == nullptr || setting.share() > largest->share()) largest = &setting;
  }
  Chosen chosen;
  for (const auto& [method, setting] : within) chosen.ranked.push_back(setting);
  for (const auto& [method, setting] : least) {
    if (!within.contains(method) && setting->share() > budget.share) chosen.beyond.push_back(setting);
  }
  std::ranges::stable_sort(chosen.beyond, {}, &Setting::share);
  return chosen;
}

bool has_intervals(const Setting& setting, const std::string& workload) {
  return std::ranges::all_of(setting.in(workload),
                             [](const Samples* samples) { return std::ssize(*samples) >= fewest_pairs(); });
}

std::vector<metrics::RankEstimate> ranks_of(const std::vector<const Setting*>& ranked, const std::string& workload) {
  if (ranked.empty() || !has_intervals(*ranked.front(), workload)) return {};
  std::vector<std::vector<double>> all;
  for (const Setting* setting : ranked) all.push_back(setting->distances(workload));
  return metrics::bootstrap_ranks(all);
}

void keep_shared_samples(ExperimentData& data, size_t settings) {
  std::map<std::string, std::map<std::string, size_t>> settings_with;  // by workload and sample
  for (const Setting& setting : settings_of(data)) {
    for (const auto& [workload, samples] : setting.by_workload) {
      for (const auto& [sample, distance] : samples) ++settings_with[workload][sample];
    }
  }
  for (CellData& cell : data.cells) {
    if (cell.row.cell.kind != results::CellKind::quality) continue;
    std::map<std::string, size_t>& with = settings_with[cell.row.cell.workload];
    for (auto& [metric, column] : cell.values.own())
      std::erase_if(column.rows, [&](const results::ValueRow& row) { return with[row.sample_id] < settings; });
  }
}

}  // namespace kvarena::reports
