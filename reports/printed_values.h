#pragma once
// Inside the reports folder: values of ours that a printed number speaks of.

#include <optional>
#include <string>
#include <vector>

#include "metrics/statistics.h"
#include "reports/experiment_data.h"

namespace kvarena::reports {

/// A number of ours in the printed unit, or why there is none.
struct Ours {
  double value = 0;
  std::optional<metrics::Interval> interval;
  size_t samples = 0;
  const CellData* cell = nullptr;
  const results::ValueColumn* values = nullptr;
  std::string missing;
};

/// Ours::missing where nothing was measured.
inline constexpr const char* kNoValue = "no value here";

/// The values of a method: of quality cells, then timed, then served, then modelled.
[[nodiscard]] Ours values_for(const ExperimentData& data, const std::string& method, const std::string& workload,
                              const std::string& metric);

/// The numbers of values_for(). Of several loads the largest rate that was served; none of another metric, as where
/// there are no values, with a reason.
[[nodiscard]] std::vector<double> numbers_of(Ours& ours);

/// The metric that is printed: a workload's own where none is named.
[[nodiscard]] std::string metric_of(const ExperimentData& data, const std::string& metric, const std::string& workload);

/// Workloads that a printed value speaks of.
[[nodiscard]] std::vector<std::string> workloads_of(const ExperimentData& data, const results::PublishedValue& printed);

/// Labels of the settings that a printed value speaks of, and of those that it is held against; at least one.
[[nodiscard]] std::vector<std::string> settings_of(const ExperimentData& data, const results::PublishedValue& printed);
[[nodiscard]] std::vector<std::string> rivals_of(const ExperimentData& data, const results::PublishedValue& printed);

/// Brings a number of ours to the printed unit.
void change_unit(const std::string& stored, const std::string& printed, Ours& ours);

/// Notes a workload's cell: the first, or the first of project-made samples.
void note_cell(const Ours& one, Ours& all);

}  // namespace kvarena::reports
