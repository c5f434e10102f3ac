#include "harness/experiment/status.h"

#include <algorithm>
#include <ctime>
#include <utility>

namespace kvarena::experiment {
namespace {

/// "2026-11-21T17:05:23Z" as seconds since 1970; `otherwise` for anything else.
int64_t seconds_of(const std::string& utc, int64_t otherwise) {
  std::tm time{};
  const char* end = ::strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time);
  return end != nullptr && *end == '\0' ? static_cast<int64_t>(::timegm(&time)) : otherwise;
}

ExperimentStatus status_of(const results::ResultsReader& results, const std::string& experiment, int64_t now) {
  ExperimentStatus status;
  status.experiment = experiment;
  for (results::CellRow& row : results.cells(experiment)) {
    ++status.cells[std::string(results::name(row.state))];
    status.planned += row.cell.planned_samples;
    status.done += row.done_samples;
    if (row.state != results::CellState::failed && row.state != results::CellState::missing) continue;
    status.given_up += row.cell.planned_samples - row.done_samples;
    status.failures.push_back(std::move(row));
  }
  status.invented = results::invented_data(results.last_inputs(experiment));
  const auto runs = results.runs(experiment);
  if (runs.empty()) return status;
  // Starts are known to the second: of those that began in the same one, the run that has not ended is the last.
  const results::RunRecord& last = *std::ranges::max_element(runs, {}, [](const results::RunRecord& run) {
    return std::pair(run.started_at, run.state == results::RunState::running);
  });
  status.run_id = last.run_id;
  status.state = last.state;
  status.by_this_run = results.evaluated_by(last.run_id);
  const int64_t begin = seconds_of(last.started_at, now);
  status.run_s = static_cast<double>(seconds_of(last.finished_at, now) - begin);
  return status;
}

}  // namespace

double ExperimentStatus::seconds_left() const {
  if (left() == 0) return 0;
  return by_this_run > 0 && run_s > 0 ? run_s / static_cast<double>(by_this_run) * static_cast<double>(left()) : -1;
}

std::vector<ExperimentStatus> experiment_status(const results::ResultsReader& results, int64_t now) {
  std::vector<ExperimentStatus> all;
  for (const results::ExperimentRecord& experiment : results.experiments()) {
    all.push_back(status_of(results, experiment.experiment, now));
  }
  return all;
}

}  // namespace kvarena::experiment
