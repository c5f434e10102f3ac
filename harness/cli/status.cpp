// kvarena status DATABASE: how far a sweep is, while it runs and after.

#include "harness/experiment/status.h"

#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "harness/cli/commands.h"
#include "harness/cli/invented_text.h"
#include "harness/core/file_lock.h"
#include "harness/core/json_text.h"
#include "harness/core/page.h"
#include "harness/core/progress.h"
#include "harness/core/terminal.h"
#include "harness/experiment/workers/process_memory.h"

namespace kvarena::cli {
namespace {

using experiment::ExperimentStatus;
using nlohmann::json;

struct Options {
  std::filesystem::path database;
  bool as_json = false;

  void declare(OptionSet& o) {
    o.positional("DATABASE", database).help("results database; a run may be writing to it");
    o.flag("json", as_json).help("for programs");
  }
};

/// The process that writes to the database now, and what its workers hold.
struct Runner {
  std::optional<LockHolder> process;
  std::optional<int64_t> worker_bytes;  // on this machine only
};

Runner runner_of(const std::filesystem::path& database) {
  Runner runner{.process = lock_holder(lock_of(database)), .worker_bytes = std::nullopt};
  if (!runner.process || !runner.process->on_this_host) return runner;
  int64_t bytes = 0;
  for (const pid_t worker : experiment::children_of(static_cast<pid_t>(runner.process->process)))
    bytes += experiment::own_memory(worker).value_or(0);
  runner.worker_bytes = bytes;
  return runner;
}

/// The last run's state; a run that was killed still has the state "running" in the database.
std::string state_text(const ExperimentStatus& status, const Runner& runner) {
  if (status.run_id.empty()) return "never run";
  if (status.state == results::RunState::running && !runner.process) return "killed";
  return std::string(results::name(status.state));
}

json status_json(const ExperimentStatus& status, const Runner& runner) {
  json failures = json::array();
  for (const results::CellRow& row : status.failures) {
    failures.push_back({{"model", row.cell.model},
                        {"workload", row.cell.workload},
                        {"method", row.cell.method},
                        {"kind", results::name(row.cell.kind)},
                        {"state", results::name(row.state)},
                        {"reason", row.reason}});
  }
  json invented = json::array();
  for (const results::InventedData& data : status.invented)
    invented.push_back({{"model", data.model}, {"workload", data.workload}, {"instead_of", data.instead_of}});
  const double left = status.seconds_left();
  return {{"experiment", status.experiment},
          {"state", state_text(status, runner)},
          {"run", status.run_id},
          {"cells", status.cells},
          {"evaluations",
           {{"planned", status.planned},
            {"done", status.done},
            {"given_up", status.given_up},
            {"left", status.left()},
            {"by_this_run", status.by_this_run}}},
          {"run_s", status.run_s},
          {"seconds_left", left < 0 ? json() : json(left)},
          {"worker_bytes", runner.worker_bytes ? json(*runner.worker_bytes) : json()},
          {"project_made_data", std::move(invented)},
          {"failures", std::move(failures)}};
}

Page status_page(const ExperimentStatus& status, const Runner& runner) {
  const std::string state = state_text(status, runner);
  std::string text = fmt::format(": {}, {} of {} evaluations", state, status.done, status.planned);
  if (status.given_up > 0) text += fmt::format(", {} given up", status.given_up);
  if (state == "running" && status.left() > 0 && status.seconds_left() >= 0) {
    text += fmt::format(", {} left", duration_text(status.seconds_left()));
  }
  std::string cells;
  for (const auto& [name, count] : status.cells)
    cells += fmt::format("{}{} {}", cells.empty() ? "" : ", ", count, name);
  text += fmt::format("\n  cells: {}\n", cells.empty() ? "none" : cells);
  if (!status.invented.empty()) text += fmt::format("  data: {}\n", invented_text(status.invented));
  if (state == "running" && runner.process) {
    text += fmt::format("  by process {} on {}", runner.process->process, runner.process->host);
    if (runner.worker_bytes) text += fmt::format(", whose workers hold {}", bytes_text(*runner.worker_bytes));
    text += '\n';
  }
  for (const results::CellRow& row : status.failures) {
    text += fmt::format("  {}: {}, {}, {}: {}\n", results::name(row.state), row.cell.model, row.cell.workload,
                        row.cell.method, row.reason);
  }
  return Page().bold(status.experiment).text(text);
}

int run(const Options& options) {
  const results::ResultsReader results(options.database);
  const Runner runner = runner_of(options.database);
  json list = json::array();
  Page page;
  for (const ExperimentStatus& status : experiment::experiment_status(results, std::time(nullptr))) {
    list.push_back(status_json(status, runner));
    page.append(status_page(status, runner));
  }
  if (options.as_json) {
    print(fmt::format("{}\n", json_text(list, 2)));
  } else {
    print(page);
  }
  return 0;
}

}  // namespace

Command status_command() {
  return make_command<Options>(
      {.name = "status",
       .summary = "how far a sweep is: cells, time left, failures, memory",
       .examples = {{"kvarena status quickstart.db", "while `kvarena run` writes to it, or after"},
                    {"kvarena status quickstart.db --json", "for programs"}}},
      run);
}

}  // namespace kvarena::cli
