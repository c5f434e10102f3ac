#include "reports/comparisons.h"

#include <algorithm>
#include <vector>

#include "harness/core/error.h"
#include "metrics/stored_metrics.h"

namespace kvarena::reports {
namespace {

using results::CellKind;

constexpr const char* kDistance = metrics::kKlNats.name;

const CellData* numbers_of(const ExperimentData& data, const std::string& method, const std::string& workload) {
  const CellData* cell = data.find(method, workload, CellKind::quality);
  return cell != nullptr && cell->counts() ? cell : nullptr;
}

/// Looks that scores of one kind share.
MetricLook kind_of(const ExperimentData& data, const std::string& workload) {
  MetricLook look = look_of(data, primary_metric(data, workload));
  look.title.clear();
  return look;
}

/// KL of samples; empty where the baseline's own is not zero.
std::vector<double> distances(const ExperimentData& data, const CellData& cell) {
  const CellData* baseline = numbers_of(data, data.baseline(), cell.row.cell.workload);
  if (baseline == nullptr) return {};
  const std::vector<double> own = finite(baseline->numbers(kDistance));
  if (own.empty() || std::ranges::any_of(own, [](double x) { return x != 0; })) return {};
  return finite(cell.numbers(kDistance));
}

double distance_floor(const ExperimentData& data, const std::string& workload) {
  const auto floor = noise_floor(data, workload, kDistance);
  return floor ? floor->value : 0;
}

/// Cells that are pooled, with what they share.
struct Pool {
  std::vector<SamplePairs> parts;  // one a workload
  std::vector<double> kl, floors, kl_floors;

  void add(const ExperimentData& data, const CellData& cell, SamplePairs part) {
    const std::string& workload = cell.row.cell.workload;
    if (const auto floor = noise_floor(data, workload, primary_metric(data, workload))) floors.push_back(floor->value);
    const std::vector<double> more = distances(data, cell);
    kl.insert(kl.end(), more.begin(), more.end());
    kl_floors.push_back(distance_floor(data, workload));
    parts.push_back(std::move(part));
  }

  /// All pairs, scaled so that their mean is the mean of the workloads' means.
  [[nodiscard]] SamplePairs weighted() const {
    size_t total = 0;
    for (const SamplePairs& part : parts) total += part.method.size();
    SamplePairs all;
    for (const SamplePairs& part : parts) {
      const double weight = static_cast<double>(total) / static_cast<double>(parts.size() * part.method.size());
      for (const double value : part.method) all.method.push_back(weight * value);
      for (const double value : part.baseline) all.baseline.push_back(weight * value);
    }
    return all;
  }

  [[nodiscard]] Evidence evidence() const {
    const SamplePairs all = weighted();
    Evidence evidence{.test = metrics::paired_difference(all.method, all.baseline, resampling_for(all.method.size())),
                      .p_value = 1,
                      .floor = {},
                      .tokens = token_evidence(kl, metrics::mean_of(kl_floors))};
    evidence.p_value = evidence.test.p_value;
    if (!floors.empty())
      evidence.floor = NoiseFloor{.value = metrics::mean_of(floors), .samples = static_cast<int64_t>(floors.size())};
    return evidence;
  }
};

}  // namespace

bool have_one_look(const ExperimentData& data) {
  const std::vector<std::string> workloads = data.workloads();
  return !workloads.empty() && std::ranges::all_of(workloads, [&](const std::string& workload) {
    return kind_of(data, workload) == kind_of(data, workloads.front());
  });
}

std::optional<TokenEvidence> cell_tokens(const ExperimentData& data, const CellData& cell) {
  return token_evidence(distances(data, cell), distance_floor(data, cell.row.cell.workload));
}

Comparisons::Comparisons(const ExperimentData& data, bool unlike_prompts) {
  const std::vector<std::string> workloads = data.workloads();
  for (const std::string& workload : workloads) {
    groups_[workload] = *std::ranges::find_if(
        workloads, [&](const std::string& other) { return kind_of(data, other) == kind_of(data, workload); });
  }
  for (const std::string& method : data.methods()) {
    if (method == data.baseline()) continue;
    compare_row(data, method, unlike_prompts);
    pool_row(data, method);
  }
  std::map<std::string, double> by_workload;
  for (const std::string& workload : workloads) by_workload[workload] = detectable(workload);
  for (auto& [cell, comparison] : cells_) {
    if (comparison.evidence) comparison.evidence->detectable = by_workload[cell->row.cell.workload];
  }
  std::map<std::string, std::vector<metrics::PairedDifference>> by_group;
  for (const auto& [key, evidence] : pooled_) by_group[key.second].push_back(evidence.test);
  for (auto& [key, evidence] : pooled_) evidence.detectable = detectable_difference(by_group[key.second]);
}

void Comparisons::compare_row(const ExperimentData& data, const std::string& method, bool unlike_prompts) {
  std::vector<metrics::PairedDifference> row;
  std::vector<Evidence*> tested;
  for (const std::string& workload : data.workloads()) {
    const CellData* cell = numbers_of(data, method, workload);
    const CellData* baseline = numbers_of(data, data.baseline(), workload);
    if (cell == nullptr || baseline == nullptr) continue;
    const std::string metric = primary_metric(data, workload);
    CellComparison& comparison = cells_[cell];
    try {
      if (auto test = pair_cells(*cell, *baseline, metric)) {
        comparison.evidence = Evidence{.test = *test,
                                       .p_value = test->p_value,
                                       .floor = noise_floor(data, workload, metric),
                                       .tokens = cell_tokens(data, *cell)};
        row.push_back(*test);
        tested.push_back(&*comparison.evidence);
      }
    } catch (const UserError& error) {
      if (!unlike_prompts) throw;
      comparison.refusal = error.what();
    }
  }
  const std::vector<double> adjusted = row_p_values(row);
  for (size_t i = 0; i < tested.size(); ++i) tested[i]->p_value = adjusted[i];
}

void Comparisons::pool_row(const ExperimentData& data, const std::string& method) {
  std::map<std::string, Pool> pools;
  for (const std::string& workload : data.workloads()) {
    const CellData* cell = numbers_of(data, method, workload);
    const auto found = cells_.find(cell);
    if (found == cells_.end() || !found->second.evidence) continue;
    const CellData* baseline = numbers_of(data, data.baseline(), workload);
    pools[groups_.at(workload)].add(data, *cell, *sample_pairs(*cell, *baseline, primary_metric(data, workload)));
  }
  for (const auto& [group, pool] : pools) {
    if (pool.parts.size() > 1) pooled_.emplace(std::pair(method, group), pool.evidence());
  }
}

const CellComparison* Comparisons::of(const CellData* cell) const {
  const auto found = cells_.find(cell);
  return found == cells_.end() ? nullptr : &found->second;
}

const Evidence* Comparisons::pooled(const std::string& method, const std::string& workload) const {
  const auto group = groups_.find(workload);
  if (group == groups_.end()) return nullptr;
  const auto found = pooled_.find({method, group->second});
  return found == pooled_.end() ? nullptr : &found->second;
}

std::vector<metrics::PairedDifference> Comparisons::tests(const std::string& workload) const {
  std::vector<metrics::PairedDifference> list;
  for (const auto& [cell, comparison] : cells_) {
    if (cell->row.cell.workload == workload && comparison.evidence) list.push_back(comparison.evidence->test);
  }
  return list;
}

int64_t Comparisons::samples(const std::string& workload) const {
  int64_t most = 0;
  for (const metrics::PairedDifference& test : tests(workload)) most = std::max(most, test.samples);
  return most;
}

double Comparisons::detectable(const std::string& workload) const { return detectable_difference(tests(workload)); }

}  // namespace kvarena::reports
