#include "harness/experiment/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/core/seconds_since.h"
#include "harness/experiment/config_parts.h"
#include "harness/experiment/provenance.h"
#include "harness/results/left_out.h"
#include "harness/results/soundness.h"

namespace kvarena::experiment {
namespace {

using results::CellFailure;
using results::CellState;
using results::SampleResult;
using Clock = std::chrono::steady_clock;

results::ExperimentRecord record_of(const ExperimentConfig& config) {
  return {.experiment = config.name,
          .title = config.title,
          .config_json = config.canonical_json,
          .table_json = table_json(config.table),
          .published = config.published};
}

results::RunRecord run_of(const ExperimentConfig& config) {
  results::RunRecord run = collect_provenance();
  run.experiment = config.name;
  run.config_path = config.path.string();
  run.config_text = config.text;
  run.overrides_json = config.overrides_json;
  run.seed = config.engine.seed;
  return run;
}

/// Leaves a failure's first line as its reason; what follows is its log where it has none.
void split_failure(SampleOutcome& outcome) {
  const size_t end = outcome.failure.find('\n');
  if (end == std::string::npos) return;
  if (outcome.log.empty()) outcome.log = outcome.failure.substr(end + 1);
  outcome.failure.resize(end);
}

/// A cell on its way: what it lacks, and whether it is given up, because it failed or its method's weights are missing.
struct OpenCell {
  const PlannedCell* cell = nullptr;
  std::set<std::string> done;
  bool given_up = false;
};

class Runner {
 public:
  Runner(const Plan& plan, Evaluator& evaluator, results::ResultsStore& results, Progress& progress,
         const std::atomic<bool>& stop, const RunOptions& options)
      : plan_(plan),
        evaluator_(evaluator),
        results_(results),
        progress_(progress),
        stop_(stop),
        options_(options),
        log_(options.log != nullptr ? *options.log : no_log_) {}

  RunSummary run() {
    results::refuse_faults(results_.path());
    summary_.run_id = results_.begin_run(record_of(*plan_.config), run_of(*plan_.config));
    try {
      results_.define_metrics(evaluator_.metric_definitions());
      record_plan();
      for (const ModelEntry& model : plan_.config->models) {
        if (!summary_.interrupted) run_model(model);
      }
      progress_.finish();
      results_.finish_run(summary_.run_id,
                          summary_.interrupted ? results::RunState::interrupted : results::RunState::finished);
    } catch (...) {
      log_.record("run_failed", {{"run", summary_.run_id}, {"reason", failure_of([] { throw; })}});
      // Where even this cannot be written, the next run finds the state `running` and corrects it.
      failure_of([&] { results_.finish_run(summary_.run_id, results::RunState::failed); });
      throw;
    }
    count_outcomes();
    log_.record("run_ended", {{"run", summary_.run_id},
                              {"evaluated", summary_.evaluated},
                              {"failed_cells", summary_.failed_cells},
                              {"inactive_cells", summary_.inactive_cells},
                              {"missing_cells", summary_.missing_cells},
                              {"interrupted", summary_.interrupted},
                              {"seconds", seconds_since(began_)}});
    return summary_;
  }

 private:
  void record_plan() {
    std::vector<results::CellRecord> cells;
    for (const CellGroup& group : plan_.groups) {
      for (const PlannedCell& cell : group.cells) cells.push_back(cell.record);
    }
    results_.upsert_cells(cells);
    mark_missing();
    double cost_left = 0;
    for (const CellGroup& group : plan_.groups) {
      for (const PlannedCell& cell : group.cells) {
        if (options_.retry_failed) results_.retry_failed(cell.record.cell_id);
        const OpenCell open = open_cell(cell);
        for (size_t i = 0; i < group.sample_ids.size(); ++i) {
          const bool done = open.done.contains(group.sample_ids[i]);
          summary_.already_done += group.asked[i] && done;
          cost_left += group.asked[i] && !done ? group.cost : 0;
        }
      }
    }
    progress_.begin(plan_.config->name, plan_.evaluations(), summary_.already_done, cost_left);
    log_.record("run_began", {{"run", summary_.run_id},
                              {"experiment", plan_.config->name},
                              {"database", results_.path().string()},
                              {"done", summary_.already_done},
                              {"total", plan_.evaluations()}});
  }

  /// Records the cells whose methods' weights are not there, and says it once for each method of a model.
  void mark_missing() {
    std::set<std::pair<const ModelEntry*, const ComponentEntry*>> told;
    for (const CellGroup& group : plan_.groups) {
      for (const PlannedCell& cell : group.cells) {
        if (cell.missing.empty()) continue;
        results_.mark_missing(cell.record.cell_id, cell.missing);
        if (!told.emplace(cell.model, cell.method).second) continue;
        progress_.message(fmt::format("missing: {}, {}: {}", cell.record.model, cell.record.method, cell.missing));
      }
    }
  }

  OpenCell open_cell(const PlannedCell& cell) const {
    const auto row = results_.read().cell(cell.record.cell_id);
    KVARENA_ASSERT(row.has_value(), cell.record.cell_id);
    return {.cell = &cell,
            .done = results_.read().done_samples(cell.record.cell_id),
            .given_up = row->state == CellState::failed || row->state == CellState::missing};
  }

  static bool lacks(const OpenCell& open, const CellGroup& group, size_t sample) {
    return !open.given_up && group.asked[sample] && !open.done.contains(group.sample_ids[sample]);
  }

  static bool lacks_any(const OpenCell& open, const CellGroup& group) {
    for (size_t i = 0; i < group.sample_ids.size(); ++i) {
      if (lacks(open, group, i)) return true;
    }
    return false;
  }

  /// Whether a model's weights are there, or why not.
  struct Loading {
    bool done = false;
    std::string failure;
  };

  void run_model(const ModelEntry& model) {
    Loading loading;
    const std::vector<ComponentEntry>& methods = plan_.config->methods;
    if (std::ranges::any_of(methods, &ComponentEntry::starts_server)) {
      // One server is up at a time: all cells of one come before those of the next.
      for (const ComponentEntry& method : methods) {
        run_cells(model, loading, [&](const PlannedCell& cell) { return cell.method == &method; });
      }
    } else {
      run_cells(model, loading, [](const PlannedCell&) { return true; });
    }
    if (!loading.done) return;
    const std::string trouble = failure_of([&] { evaluator_.end_model(model); });
    if (!trouble.empty()) progress_.message(fmt::format("model {} did not end cleanly: {}", model.label, trouble));
  }

  template <typename Wanted>
  void run_cells(const ModelEntry& model, Loading& loading, const Wanted& wanted) {
    for (const CellGroup& group : plan_.groups) {
      if (group.model != &model || summary_.interrupted) continue;
      std::vector<OpenCell> cells;
      bool work_left = false;
      for (const PlannedCell& cell : group.cells) {
        if (!wanted(cell)) continue;
        cells.push_back(open_cell(cell));
        work_left = work_left || lacks_any(cells.back(), group);
        if (cells.back().given_up) skip(cells.back(), group);
      }
      if (group.sample_ids.empty()) {
        give_up(cells, group, no_sample_fits(group));
        continue;
      }
      if (work_left && !loading.done && loading.failure.empty()) {
        loading.failure = load(model);
        loading.done = loading.failure.empty();
      }
      if (work_left && !loading.failure.empty()) give_up(cells, group, loading.failure);
      evaluate_group(group, cells);
    }
  }

  std::string load(const ModelEntry& model) {
    progress_.note("loading " + model.label);
    const auto begin = Clock::now();
    std::vector<results::RunInput> inputs;
    std::string failure = failure_of([&] {
      inputs = evaluator_.inputs(model);
      evaluator_.begin_model(model, plan_.config->engine);
    });
    for (const results::RunInput& input : inputs) results_.add_input(summary_.run_id, input);
    if (failure.empty()) log_.record("model_loaded", {{"model", model.label}, {"seconds", seconds_since(begin)}});
    return failure;
  }

  static std::string no_sample_fits(const CellGroup& group) {
    return describe({.found = fmt::format("no sample: {}", results::left_out_text(group.cells.front().record)),
                     .expected = "at least one that fits it together with its answer",
                     .action = "use shorter samples, fewer new tokens, or a model with a larger window"});
  }

  /// Fails every cell of the group that lacks something, as all do that have no sample.
  void give_up(std::vector<OpenCell>& cells, const CellGroup& group, const std::string& reason) {
    std::vector<CellFailure> failures;
    for (OpenCell& open : cells) {
      if (open.given_up || (!group.sample_ids.empty() && !lacks_any(open, group))) continue;
      failures.push_back({.cell_id = open.cell->record.cell_id, .sample_id = "", .reason = reason});
      fail_cell(open, group, reason);
    }
    results_.commit(summary_.run_id, {}, failures);
  }

  static std::vector<OpenCell*> lacking(std::vector<OpenCell>& cells, const CellGroup& group, size_t sample) {
    std::vector<OpenCell*> missing;
    for (OpenCell& open : cells) {
      if (lacks(open, group, sample)) missing.push_back(&open);
    }
    return missing;
  }

  /// Places of samples behind this one that the same cells lack: many where a model can be asked about several at a
  /// time.
  static std::vector<int64_t> next_samples(std::vector<OpenCell>& cells, const CellGroup& group, size_t sample,
                                           const std::vector<OpenCell*>& missing) {
    const size_t most = group.model->behind_endpoint() ? 1024 : 1;
    std::vector<int64_t> next;
    for (size_t i = sample + 1; i < group.sample_ids.size() && next.size() < most; ++i) {
      if (lacking(cells, group, i) == missing) next.push_back(static_cast<int64_t>(i));
    }
    return next;
  }

  void evaluate_group(const CellGroup& group, std::vector<OpenCell>& cells) {
    for (size_t i = 0; i < group.sample_ids.size(); ++i) {
      const std::vector<OpenCell*> missing = lacking(cells, group, i);
      if (missing.empty()) continue;
      if (stop_.load()) {
        summary_.interrupted = true;
        return;
      }
      evaluate_sample(group, static_cast<int64_t>(i), missing, next_samples(cells, group, i, missing));
    }
    for (const OpenCell& open : cells) {
      const auto done = [&](const std::string& id) { return open.done.contains(id); };
      // Otherwise it failed, or other shards have the rest.
      if (std::ranges::all_of(group.sample_ids, done)) settle(open);
    }
  }

  void evaluate_sample(const CellGroup& group, int64_t index, const std::vector<OpenCell*>& missing,
                       const std::vector<int64_t>& next) {
    const std::string& sample_id = group.sample_ids[static_cast<size_t>(index)];
    progress_.note(fmt::format("{}, {}, {} {} of {}", group.model->label, group.workload->label,
                               results::name(group.kind), index + 1, group.sample_ids.size()));
    const auto begin = Clock::now();
    std::vector<const PlannedCell*> asked;
    for (const OpenCell* open : missing) asked.push_back(open->cell);
    std::vector<SampleOutcome> outcomes = outcomes_of({.model = *group.model,
                                                       .workload = *group.workload,
                                                       .kind = group.kind,
                                                       .sample_id = sample_id,
                                                       .sample_index = index,
                                                       .cells = asked,
                                                       .next = next});

    std::vector<SampleResult> results;
    std::vector<CellFailure> failures;
    for (size_t i = 0; i < missing.size(); ++i) {
      const std::string& cell_id = missing[i]->cell->record.cell_id;
      if (outcomes[i].failure.empty()) outcomes[i].failure = results::problem_of(outcomes[i].result);
      if (!outcomes[i].failure.empty()) {
        split_failure(outcomes[i]);
        failures.push_back(
            {.cell_id = cell_id, .sample_id = sample_id, .reason = outcomes[i].failure, .log = outcomes[i].log});
        continue;
      }
      SampleResult& result = results.emplace_back(std::move(outcomes[i].result));
      result.cell_id = cell_id;
      result.sample_id = sample_id;
      result.sample_index = index;
    }
    results_.commit(summary_.run_id, results, failures);  // before anything else is begun

    for (size_t i = 0; i < missing.size(); ++i) {
      if (outcomes[i].failure.empty()) {
        missing[i]->done.insert(sample_id);
      } else {
        fail_cell(*missing[i], group, fmt::format("sample {}: {}", sample_id, outcomes[i].failure));
      }
    }
    summary_.evaluated += static_cast<int64_t>(results.size());
    progress_.advance(static_cast<int64_t>(results.size()), group.cost);
    log_.record("sample_evaluated", {{"model", group.model->label},
                                     {"workload", group.workload->label},
                                     {"kind", results::name(group.kind)},
                                     {"sample", sample_id},
                                     {"methods", missing.size()},
                                     {"failed", failures.size()},
                                     {"seconds", seconds_since(begin)},
                                     {"done", summary_.already_done + summary_.evaluated},
                                     {"total", plan_.evaluations()}});
  }

  /// Evaluates all cells together, or one by one when that ends in an exception: it is the fault of those alone that
  /// end so by themselves.
  std::vector<SampleOutcome> outcomes_of(const EvalTask& task) {
    std::vector<SampleOutcome> outcomes;
    const std::string failure = failure_of([&] { outcomes = evaluator_.evaluate(task); });
    if (failure.empty()) {
      KVARENA_ASSERT(outcomes.size() == task.cells.size(),
                     fmt::format("{} outcomes for {} cells", outcomes.size(), task.cells.size()));
      return outcomes;
    }
    if (task.cells.size() == 1) return {SampleOutcome{.failure = failure}};
    progress_.message(fmt::format("sample {}: {}; its {} methods are evaluated one by one", task.sample_id, failure,
                                  task.cells.size()));
    log_.record("sample_divided", {{"sample", task.sample_id}, {"reason", failure}, {"methods", task.cells.size()}});
    for (size_t i = 0; i < task.cells.size(); ++i) {
      EvalTask alone = task;
      alone.cells = task.cells.subspan(i, 1);
      alone.next = {};
      outcomes.push_back(outcomes_of(alone).front());
    }
    return outcomes;
  }

  void fail_cell(OpenCell& open, const CellGroup& group, const std::string& reason) {
    progress_.message(fmt::format("failed: {}, {}, {}: {}", group.model->label, group.workload->label,
                                  open.cell->record.method, reason));
    log_cell("cell_failed", open, reason);
    open.given_up = true;
    skip(open, group);
  }

  /// Leaves out the samples that a cell lacks which is given up.
  void skip(const OpenCell& open, const CellGroup& group) {
    int64_t lacking = 0;
    for (size_t i = 0; i < group.sample_ids.size(); ++i) {
      lacking += group.asked[i] && !open.done.contains(group.sample_ids[i]);
    }
    progress_.skip(lacking, group.cost);
  }

  void settle(const OpenCell& open) {
    const std::string& id = open.cell->record.cell_id;
    const CellState state = results_.read().cell(id)->state;
    if (state != CellState::running && state != CellState::pending) return;
    std::vector<results::MetricValue> values;
    const std::string failure = failure_of([&] { values = evaluator_.cell_values(*open.cell, results_.read()); });
    if (failure.empty()) {
      results_.settle_cell(id, values);
      return log_cell("cell_ended", open, "");
    }
    const CellFailure failed{.cell_id = id, .sample_id = "", .reason = "metrics of the cell: " + failure};
    results_.commit(summary_.run_id, {}, std::span(&failed, 1));
    progress_.message(fmt::format("failed: {}: {}", open.cell->record.method, failed.reason));
    log_cell("cell_failed", open, failed.reason);
  }

  void log_cell(std::string_view event, const OpenCell& open, const std::string& reason) {
    const results::CellRecord& cell = open.cell->record;
    log_.record(event, {{"model", cell.model},
                        {"workload", cell.workload},
                        {"kind", results::name(cell.kind)},
                        {"method", cell.method},
                        {"samples", open.done.size()},
                        {"reason", reason}});
  }

  void count_outcomes() {
    for (const CellGroup& group : plan_.groups) {
      for (const PlannedCell& cell : group.cells) {
        const CellState state = results_.read().cell(cell.record.cell_id)->state;
        summary_.failed_cells += state == CellState::failed;
        summary_.inactive_cells += state == CellState::inactive;
        summary_.missing_cells += state == CellState::missing;
      }
    }
    if (summary_.interrupted) {
      progress_.message(fmt::format("stopped: {} of {} evaluations are in {}; the same command goes on from there",
                                    summary_.already_done + summary_.evaluated, plan_.evaluations(),
                                    results_.path().string()));
    }
  }

  const Plan& plan_;
  Evaluator& evaluator_;
  results::ResultsStore& results_;
  Progress& progress_;
  const std::atomic<bool>& stop_;
  const RunOptions options_;
  EventLog no_log_;
  EventLog& log_;
  const Clock::time_point began_ = Clock::now();
  RunSummary summary_;
};

}  // namespace

RunSummary run_plan(const Plan& plan, Evaluator& evaluator, results::ResultsStore& results, Progress& progress,
                    const std::atomic<bool>& stop, const RunOptions& options) {
  return Runner(plan, evaluator, results, progress, stop, options).run();
}

}  // namespace kvarena::experiment
