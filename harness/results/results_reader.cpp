#include "harness/results/results_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/results/database.h"
#include "harness/results/select_rows.h"

namespace kvarena::results {
namespace {

constexpr const char* kCellColumns =
    "SELECT cell_id, experiment, kind, model, model_json, workload, workload_json, method, method_name, settings_json, "
    "engine_json, protocol_json, protocol_sha256, baseline, position, planned_samples, left_out_samples, state, "
    "reason, failure_log, superseded, wall_s, (SELECT count(*) FROM samples s WHERE s.cell_id = cells.cell_id), "
    "(SELECT count(*) FROM samples s WHERE s.cell_id = cells.cell_id AND s.active = 1) FROM cells ";

std::vector<CellRow> select_cells(SQLite::Database& database, const std::string& condition,
                                  const std::vector<std::string>& arguments) {
  const std::string sql = kCellColumns + condition + " ORDER BY position, cell_id";
  auto rows = select<CellRow>(database, sql.c_str(), arguments, [](Columns& next) {
    CellRow row;
    CellRecord& cell = row.cell;
    cell.cell_id = next.text();
    cell.experiment = next.text();
    cell.kind = next.one_of(std::array{CellKind::quality, CellKind::timing, CellKind::noise_floor, CellKind::serving});
    for (std::string* text :
         {&cell.model, &cell.model_json, &cell.workload, &cell.workload_json, &cell.method, &cell.method_name,
          &cell.settings_json, &cell.engine_json, &cell.protocol_json, &cell.protocol_sha256}) {
      *text = next.text();
    }
    cell.baseline = next.flag();
    cell.position = next.integer();
    cell.planned_samples = next.integer();
    cell.left_out_samples = next.integer();
    row.state = next.one_of(std::array{CellState::pending, CellState::running, CellState::done, CellState::failed,
                                       CellState::inactive, CellState::missing});
    row.reason = next.text();
    row.failure_log = next.text();
    row.superseded = next.flag();
    row.wall_s = next.number();
    row.done_samples = next.integer();
    row.active_samples = next.integer();
    return row;
  });
  for (CellRow& row : rows) {
    row.peak_bytes = select<std::pair<std::string, int64_t>>(
        database, "SELECT tier, peak_bytes FROM cell_peaks WHERE cell_id = ?", {row.cell.cell_id}, [](Columns& next) {
          std::string tier = next.text();
          return std::pair(std::move(tier), next.integer());
        });
  }
  return rows;
}

/// A text column of a cell's samples, by sample id.
std::map<std::string, std::string> text_by_sample(SQLite::Database& database, const char* column,
                                                  const std::string& cell_id, const char* condition = "true") {
  const std::string sql = fmt::format("SELECT sample_id, {} FROM samples WHERE cell_id = ? AND {}", column, condition);
  const auto rows = select<std::pair<std::string, std::string>>(database, sql.c_str(), {cell_id}, [](Columns& next) {
    std::string sample_id = next.text();
    return std::pair(std::move(sample_id), next.text());
  });
  return {rows.begin(), rows.end()};
}

}  // namespace

ResultsReader::ResultsReader(const std::filesystem::path& path) : database_(open_to_read(path)) {}
ResultsReader::ResultsReader(std::unique_ptr<SQLite::Database> database) : database_(std::move(database)) {}
ResultsReader::~ResultsReader() = default;
ResultsReader::ResultsReader(ResultsReader&&) noexcept = default;
ResultsReader& ResultsReader::operator=(ResultsReader&&) noexcept = default;

std::vector<ExperimentRecord> ResultsReader::experiments() const {
  auto rows = select<ExperimentRecord>(
      *database_, "SELECT experiment, title, config_json, table_json FROM experiments ORDER BY experiment", {},
      [](Columns& next) {
        ExperimentRecord row;
        for (std::string* text : {&row.experiment, &row.title, &row.config_json, &row.table_json}) {
          *text = next.text();
        }
        return row;
      });
  for (ExperimentRecord& row : rows) {
    row.published = select<PublishedValue>(
        *database_,
        "SELECT model, workload, method, metric, unit, source, note, bound, value, upper, statistic, against_json "
        "FROM published WHERE experiment = ? ORDER BY model, workload, method, metric, source",
        {row.experiment}, [](Columns& next) {
          PublishedValue value;
          for (std::string* text : {&value.model, &value.workload, &value.method, &value.metric, &value.unit,
                                    &value.source, &value.note, &value.bound}) {
            *text = next.text();
          }
          value.value = next.number();
          if (const double upper = next.number(); std::isfinite(upper)) value.upper = upper;
          value.statistic = next.one_of(kStatistics);
          value.against = nlohmann::json::parse(next.text()).get<std::vector<std::string>>();
          return value;
        });
  }
  return rows;
}

std::vector<RunRecord> ResultsReader::runs(const std::string& experiment) const {
  return select<RunRecord>(
      *database_,
      "SELECT run_id, state, config_path, config_text, config_sha256, overrides_json, git_revision, build_json, host, "
      "kernel, cpu_model, cpu_features, gpu, libraries_json, started_at, finished_at, experiment, cpu_threads, seed "
      "FROM runs WHERE experiment = ? ORDER BY started_at, run_id",
      {experiment}, [](Columns& next) {
        RunRecord run;
        run.run_id = next.text();
        run.state =
            next.one_of(std::array{RunState::running, RunState::finished, RunState::interrupted, RunState::failed});
        for (std::string* text :
             {&run.config_path, &run.config_text, &run.config_sha256, &run.overrides_json, &run.git_revision,
              &run.build_json, &run.host, &run.kernel, &run.cpu_model, &run.cpu_features, &run.gpu, &run.libraries_json,
              &run.started_at, &run.finished_at, &run.experiment}) {
          *text = next.text();
        }
        run.cpu_threads = next.integer();
        run.seed = next.integer();
        return run;
      });
}

int64_t ResultsReader::evaluated_by(const std::string& run_id) const {
  const auto counts = select<int64_t>(*database_, "SELECT count(*) FROM samples WHERE run_id = ?", {run_id},
                                      [](Columns& next) { return next.integer(); });
  return counts.front();
}

std::vector<RunInput> ResultsReader::inputs(const std::string& run_id) const {
  return select<RunInput>(
      *database_,
      "SELECT kind, name, sha256, detail_json, model FROM run_inputs WHERE run_id = ? "
      "ORDER BY model, kind, name",
      {run_id}, [](Columns& next) {
        RunInput input;
        for (std::string* text : {&input.kind, &input.name, &input.sha256, &input.detail_json, &input.model}) {
          *text = next.text();
        }
        return input;
      });
}

std::vector<RunInput> ResultsReader::last_inputs(const std::string& experiment) const {
  std::map<std::array<std::string, 3>, RunInput> last;
  std::vector<RunRecord> all = runs(experiment);
  // Starts are known to the second: of those that began in the same one, the run that has not ended is the last.
  std::ranges::stable_sort(
      all, {}, [](const RunRecord& run) { return std::pair(run.started_at, run.state == RunState::running); });
  for (const RunRecord& run : all) {
    for (RunInput& input : inputs(run.run_id)) {
      std::array<std::string, 3> key = {input.model, input.kind, input.name};
      last.insert_or_assign(std::move(key), std::move(input));
    }
  }
  std::vector<RunInput> list;
  for (auto& [key, input] : last) list.push_back(std::move(input));
  return list;
}

std::vector<CellRow> ResultsReader::cells(const std::string& experiment, bool superseded) const {
  return select_cells(*database_, superseded ? "WHERE experiment = ?" : "WHERE experiment = ? AND superseded = 0",
                      {experiment});
}

std::optional<CellRow> ResultsReader::cell(const std::string& cell_id) const {
  auto rows = select_cells(*database_, "WHERE cell_id = ?", {cell_id});
  if (rows.empty()) return std::nullopt;
  return std::move(rows.front());
}

std::vector<SampleResult> ResultsReader::samples(const std::string& cell_id) const {
  return select<SampleResult>(
      *database_,
      "SELECT cell_id, sample_id, prompt_sha256, prediction, references_json, finish_reason, activity_json, context, "
      "sample_index, prompt_tokens, truncated_tokens, output_tokens, active, wall_s FROM samples WHERE cell_id = ? "
      "ORDER BY sample_index, sample_id",
      {cell_id}, [](Columns& next) {
        SampleResult sample;
        for (std::string* text :
             {&sample.cell_id, &sample.sample_id, &sample.prompt_sha256, &sample.prediction, &sample.references_json,
              &sample.finish_reason, &sample.activity_json, &sample.context}) {
          *text = next.text();
        }
        for (int64_t* number :
             {&sample.sample_index, &sample.prompt_tokens, &sample.truncated_tokens, &sample.output_tokens}) {
          *number = next.integer();
        }
        sample.active = next.flag();
        sample.wall_s = next.number();
        return sample;
      });
}

std::set<std::string> ResultsReader::done_samples(const std::string& cell_id) const {
  const auto ids = select<std::string>(*database_, "SELECT sample_id FROM samples WHERE cell_id = ?", {cell_id},
                                       [](Columns& next) { return next.text(); });
  return {ids.begin(), ids.end()};
}

std::vector<MetricInfo> ResultsReader::metrics(const std::string& experiment) const {
  return select<MetricInfo>(
      *database_,
      "SELECT DISTINCT v.metric, v.unit, v.clock, 1 AS per_sample FROM sample_values v JOIN cells c USING (cell_id) "
      "WHERE c.experiment = ?1 AND c.superseded = 0 UNION "
      "SELECT DISTINCT v.metric, v.unit, v.clock, 0 FROM cell_values v JOIN cells c USING (cell_id) "
      "WHERE c.experiment = ?1 AND c.superseded = 0 ORDER BY 1, 3, 2",
      {experiment}, [](Columns& next) {
        MetricInfo info;
        info.metric = next.text();
        info.unit = next.text();
        info.clock = next.clock();
        info.per_sample = next.flag();
        return info;
      });
}

std::vector<ValueRow> ResultsReader::values(const std::string& cell_id, const std::string& metric, Clock clock) const {
  return select<ValueRow>(
      *database_,
      "SELECT s.sample_id, s.sample_index, v.value, s.active FROM sample_values v JOIN samples s USING (cell_id, "
      "sample_id) WHERE v.cell_id = ? AND v.metric = ? AND v.clock = ? ORDER BY s.sample_index, s.sample_id",
      {cell_id, metric, std::string(name(clock))}, [](Columns& next) {
        ValueRow row;
        row.sample_id = next.text();
        row.sample_index = next.integer();
        row.value = next.number();
        row.active = next.flag();
        return row;
      });
}

std::map<std::string, std::string> ResultsReader::prompts(const std::string& cell_id) const {
  return text_by_sample(*database_, "prompt_sha256", cell_id);
}

std::map<std::string, std::string> ResultsReader::contexts(const std::string& cell_id) const {
  return text_by_sample(*database_, "context", cell_id, "context <> ''");
}

ValueColumn ResultsReader::prompt_lengths(const std::string& cell_id) const {
  ValueColumn lengths{.unit = "tokens"};
  lengths.rows = select<ValueRow>(
      *database_,
      "SELECT sample_id, sample_index, prompt_tokens + truncated_tokens FROM samples WHERE cell_id = ? "
      "ORDER BY sample_index",
      {cell_id}, [](Columns& next) {
        ValueRow row;
        row.sample_id = next.text();
        row.sample_index = next.integer();
        row.value = next.number();
        return row;
      });
  return lengths;
}

std::map<std::string, std::string> ResultsReader::predictions(const std::string& cell_id) const {
  return text_by_sample(*database_, "prediction", cell_id);
}

std::vector<MetricDefinition> ResultsReader::metric_definitions() const {
  return select<MetricDefinition>(
      *database_, "SELECT metric, title, unit, better, table_scale FROM metrics ORDER BY metric", {},
      [](Columns& next) {
        MetricDefinition metric;
        for (std::string* text : {&metric.metric, &metric.title, &metric.unit}) *text = next.text();
        metric.better = next.one_of(std::array{Direction::neither, Direction::higher, Direction::lower});
        metric.table_scale = next.number();
        return metric;
      });
}

std::vector<EventRow> ResultsReader::events(const std::string& cell_id) const {
  return select<EventRow>(
      *database_,
      "SELECT e.sample_id, e.event, e.at_ms, e.data_json FROM events e JOIN samples s USING (cell_id, sample_id) "
      "WHERE e.cell_id = ? ORDER BY s.sample_index, s.sample_id, e.position",
      {cell_id}, [](Columns& next) {
        EventRow row;
        row.sample_id = next.text();
        row.event.event = next.text();
        if (const double at = next.number(); !std::isnan(at)) row.event.at_ms = at;
        row.event.data_json = next.text();
        return row;
      });
}

std::vector<JudgeRequest> ResultsReader::unjudged(const std::string& experiment) const {
  return select<JudgeRequest>(
      *database_,
      "SELECT e.cell_id, e.sample_id, json_extract(e.data_json, '$.metric'), json_extract(e.data_json, '$.request'), "
      "json_extract(e.data_json, '$.reference') "
      "FROM events e JOIN samples s USING (cell_id, sample_id) JOIN cells c USING (cell_id) WHERE c.experiment = ? AND "
      "c.superseded = 0 AND c.kind = 'quality' AND c.state IN ('running', 'done') AND e.event = ? AND NOT "
      "EXISTS (SELECT 1 FROM sample_values v WHERE v.cell_id = e.cell_id AND v.sample_id = e.sample_id AND v.metric = "
      "json_extract(e.data_json, '$.metric')) ORDER BY c.position, s.sample_index, e.position",
      {experiment, JudgeRequest::kEvent}, [](Columns& next) {
        JudgeRequest row;
        for (std::string* text : {&row.cell_id, &row.sample_id, &row.metric, &row.request, &row.reference}) {
          *text = next.text();
        }
        return row;
      });
}

std::vector<JudgeRecord> ResultsReader::judges(const std::string& experiment) const {
  return select<JudgeRecord>(*database_,
                             "SELECT metric, model, question_sha256 FROM judges WHERE experiment = ? ORDER BY metric",
                             {experiment}, [](Columns& next) {
                               JudgeRecord row;
                               for (std::string* text : {&row.metric, &row.model, &row.question_sha256}) {
                                 *text = next.text();
                               }
                               return row;
                             });
}

}  // namespace kvarena::results
