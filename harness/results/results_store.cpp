#include "harness/results/results_store.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <tuple>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"
#include "harness/results/database.h"
#include "harness/results/series_text.h"

namespace kvarena::results {
namespace {

using nlohmann::json;

constexpr size_t kShownDigits = 8;  // of a hash in messages

/// Keys sorted, no blanks. What is not JSON is a mistake of the caller, not of the user.
std::string canonical(const std::string& text) {
  const json value = json::parse(text, nullptr, false);
  KVARENA_ASSERT(!value.is_discarded(), "not JSON: " + text.substr(0, 200));
  return value.dump();
}

/// Text that every SQLite client can read: bytes that are no UTF-8, which models do produce, become U+FFFD.
std::string valid_utf8(const std::string& text) { return json::parse(json_text(json(text))).get<std::string>(); }

std::string utc_now() {
  const auto now = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
}

/// Sorts by start; the random part keeps shards of one experiment on two machines apart.
std::string new_run_id() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y%m%dT%H%M%SZ}-{:08x}", fmt::gmtime(now), std::random_device{}());
}

/// A statement whose parameters are bound in order: put(a); put(b); run().
class Writer {
 public:
  Writer(SQLite::Database& database, const char* sql) : statement_(database, sql) {}

  Writer& put(const std::string& value) { return statement_.bind(++index_, value), *this; }
  Writer& put(std::string_view value) { return put(std::string(value)); }
  Writer& put(const char* value) { return put(std::string(value)); }
  Writer& put(int64_t value) { return statement_.bind(++index_, value), *this; }
  Writer& put(bool value) { return put(static_cast<int64_t>(value)); }
  Writer& put(double value) {  // SQLite knows no NaN
    return std::isnan(value) ? (statement_.bind(++index_), *this) : (statement_.bind(++index_, value), *this);
  }

  /// Rows changed.
  int run() {
    const int changed = statement_.exec();
    statement_.reset();
    index_ = 0;
    return changed;
  }

 private:
  SQLite::Statement statement_;
  int index_ = 0;
};

/// One transaction of the writer; rolled back unless commit() was reached.
template <typename Work>
void transact(SQLite::Database& database, std::string_view attempt, Work&& work) {
  checked(database.getFilename(), attempt, [&] {
    SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
    work();
    transaction.commit();
    refuse_lost_file(database);
  });
}

/// The statements of one batch of samples, each prepared once.
class SampleWriter {
 public:
  explicit SampleWriter(SQLite::Database& database)
      : sample_(database, "INSERT OR IGNORE INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
        value_(database,
               "INSERT INTO sample_values (cell_id, sample_id, metric, clock, value, unit, storage) "
               "VALUES (?, ?, ?, ?, ?, ?, ?)"),
        series_(database, "INSERT INTO series VALUES (?, ?, ?, ?, ?, ?, ?, ?)"),
        event_(database, "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)"),
        peak_(database,
              "INSERT INTO cell_peaks VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET peak_bytes = "
              "max(peak_bytes, excluded.peak_bytes)"),
        cell_(database,
              "UPDATE cells SET wall_s = wall_s + ?, state = CASE state WHEN 'pending' THEN 'running' ELSE state END "
              "WHERE cell_id = ?") {}

  void write(const std::string& run_id, const SampleResult& result) {
    sample_.put(result.cell_id).put(result.sample_id).put(result.sample_index).put(result.prompt_sha256);
    sample_.put(result.prompt_tokens).put(result.truncated_tokens).put(result.output_tokens);
    sample_.put(valid_utf8(result.prediction)).put(canonical(result.references_json)).put(result.finish_reason);
    sample_.put(result.active).put(canonical(result.activity_json)).put(result.wall_s).put(run_id);
    sample_.put(result.context);
    if (sample_.run() == 0) return;  // evaluated before: the first result stays

    for (const MetricValue& value : result.values) {
      value_.put(result.cell_id).put(result.sample_id).put(value.metric).put(name(value.clock));
      value_.put(value.value).put(value.unit).put(name(value.storage)).run();
    }
    for (const Series& series : result.series) {
      series_.put(result.cell_id).put(result.sample_id).put(series.name).put(name(series.clock)).put(series.unit);
      series_.put(name(series.storage)).put(static_cast<int64_t>(series.values.size()));
      series_.put(series_text(series.values)).run();
    }
    for (size_t i = 0; i < result.events.size(); ++i) {
      const Event& event = result.events[i];
      event_.put(result.cell_id).put(result.sample_id).put(static_cast<int64_t>(i)).put(event.event);
      event_.put(event.at_ms.value_or(std::nan(""))).put(canonical(event.data_json)).run();
    }
    for (const auto& [tier, bytes] : result.peak_bytes) peak_.put(result.cell_id).put(tier).put(bytes).run();
    const int cells = cell_.put(result.wall_s).put(result.cell_id).run();
    KVARENA_ASSERT(cells == 1, "a sample of an unknown cell " + result.cell_id);
  }

 private:
  Writer sample_, value_, series_, event_, peak_, cell_;
};

}  // namespace

ResultsStore::ResultsStore(std::filesystem::path path, FileLock lock, ResultsReader reader)
    : path_(std::move(path)), lock_(std::move(lock)), reader_(std::move(reader)) {}
ResultsStore::~ResultsStore() = default;
ResultsStore::ResultsStore(ResultsStore&&) noexcept = default;

ResultsStore ResultsStore::open_or_create(const std::filesystem::path& path) {
  // A file of its own, because closing any descriptor of the database itself would drop SQLite's locks.
  refuse_nowhere(path);
  FileLock lock(lock_of(path), {.place = path.string(),
                                .held = "a database that another run writes to",
                                .action = "wait for it to end, stop it, or choose another output.database"});
  return {path, std::move(lock), ResultsReader(open_to_write(path))};
}

std::string ResultsStore::begin_run(const ExperimentRecord& experiment, const RunRecord& run) {
  SQLite::Database& database = *reader_.database_;
  std::string run_id = new_run_id();
  transact(database, "record the run", [&] {
    // There is no other writer, so a run whose state is still `running` was killed.
    database.exec("UPDATE runs SET state = 'interrupted' WHERE state = 'running'");
    Writer(database, "INSERT OR REPLACE INTO experiments VALUES (?, ?, ?, ?)")
        .put(experiment.experiment)
        .put(experiment.title)
        .put(canonical(experiment.config_json))
        .put(canonical(experiment.table_json))
        .run();
    Writer(database, "DELETE FROM published WHERE experiment = ?").put(experiment.experiment).run();
    Writer published(database, "INSERT INTO published VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    for (const PublishedValue& value : experiment.published) {
      published.put(experiment.experiment).put(value.model).put(value.workload).put(value.method).put(value.metric);
      published.put(value.value).put(value.unit).put(value.source).put(value.note).put(name(value.statistic));
      published.put(value.bound).put(value.upper.value_or(std::nan("")));
      published.put(json(value.against).dump()).run();
    }
    Writer row(database, "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    row.put(run_id).put(experiment.experiment).put(name(RunState::running)).put(run.config_path).put(run.config_text);
    row.put(sha256(run.config_text)).put(canonical(run.overrides_json)).put(run.git_revision);
    row.put(canonical(run.build_json)).put(run.host).put(run.kernel).put(run.cpu_model).put(run.cpu_features);
    row.put(run.cpu_threads).put(run.gpu).put(canonical(run.libraries_json)).put(run.seed).put(utc_now()).put("").run();
  });
  return run_id;
}

void ResultsStore::define_metrics(std::span<const MetricDefinition> metrics) {
  transact(*reader_.database_, "record what metrics mean", [&] {
    Writer insert(*reader_.database_, "INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?, ?)");
    for (const MetricDefinition& metric : metrics) {
      insert.put(metric.metric).put(metric.title).put(metric.unit).put(name(metric.better)).put(metric.table_scale);
      insert.run();
    }
  });
}

void ResultsStore::add_input(const std::string& run_id, const RunInput& input) {
  transact(*reader_.database_, "record an input", [&] {
    Writer(*reader_.database_, "INSERT OR REPLACE INTO run_inputs VALUES (?, ?, ?, ?, ?, ?)")
        .put(run_id)
        .put(input.model)
        .put(input.kind)
        .put(input.name)
        .put(input.sha256)
        .put(canonical(input.detail_json))
        .run();
  });
}

void ResultsStore::finish_run(const std::string& run_id, RunState state) {
  transact(*reader_.database_, "record the end of the run", [&] {
    Writer(*reader_.database_, "UPDATE runs SET state = ?, finished_at = ? WHERE run_id = ?")
        .put(name(state))
        .put(utc_now())
        .put(run_id)
        .run();
  });
}

void ResultsStore::upsert_cells(std::span<const CellRecord> cells) {
  SQLite::Database& database = *reader_.database_;
  transact(database, "record the plan", [&] {
    // A cell that is to have more samples than it had when it ended goes on.
    Writer insert(
        database,
        "INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', '', 0, 0.0, '', ?) "
        "ON CONFLICT DO UPDATE SET baseline = excluded.baseline, position = excluded.position, "
        "superseded = 0, state = CASE WHEN state IN ('done', 'inactive') AND "
        "planned_samples < excluded.planned_samples THEN 'running' WHEN state = 'missing' THEN 'pending' ELSE state "
        "END, reason = CASE state WHEN 'missing' THEN '' ELSE reason END, "
        "planned_samples = excluded.planned_samples, left_out_samples = excluded.left_out_samples");
    Writer supersede(database,
                     "UPDATE cells SET superseded = 1 WHERE experiment = ? AND kind = ? AND model = ? AND "
                     "workload = ? AND method = ? AND cell_id <> ?");
    for (const CellRecord& cell : cells) {
      insert.put(cell.cell_id).put(cell.experiment).put(name(cell.kind)).put(cell.model);
      insert.put(canonical(cell.model_json)).put(cell.workload).put(canonical(cell.workload_json)).put(cell.method);
      insert.put(cell.method_name).put(canonical(cell.settings_json)).put(canonical(cell.engine_json));
      insert.put(canonical(cell.protocol_json)).put(cell.protocol_sha256).put(cell.baseline).put(cell.position);
      insert.put(cell.planned_samples).put(cell.left_out_samples).run();
      supersede.put(cell.experiment).put(name(cell.kind)).put(cell.model).put(cell.workload).put(cell.method);
      supersede.put(cell.cell_id).run();
    }
  });
}

void ResultsStore::mark_missing(const std::string& cell_id, const std::string& reason) {
  transact(*reader_.database_, "record what is missing", [&] {
    Writer(*reader_.database_,
           "UPDATE cells SET state = 'missing', reason = ? WHERE cell_id = ? AND state IN ('pending', 'missing')")
        .put(valid_utf8(reason))
        .put(cell_id)
        .run();
  });
}

void ResultsStore::retry_failed(const std::string& cell_id) {
  transact(*reader_.database_, "clear a failure", [&] {
    Writer(*reader_.database_,
           "UPDATE cells SET reason = '', failure_log = '', state = CASE WHEN EXISTS (SELECT 1 FROM samples s WHERE "
           "s.cell_id = "
           "cells.cell_id) THEN 'running' ELSE 'pending' END WHERE cell_id = ? AND state = 'failed'")
        .put(cell_id)
        .run();
  });
}

void ResultsStore::commit(const std::string& run_id, std::span<const SampleResult> results,
                          std::span<const CellFailure> failures) {
  SQLite::Database& database = *reader_.database_;
  transact(database, "commit samples", [&] {
    SampleWriter writer(database);
    for (const SampleResult& result : results) writer.write(run_id, result);
    Writer failed(database,
                  "UPDATE cells SET state = 'failed', reason = ?, failure_log = ? WHERE cell_id = ? AND state IN "
                  "('pending', 'running')");
    for (const CellFailure& failure : failures) {
      const std::string where = failure.sample_id.empty() ? "" : fmt::format("sample {}: ", failure.sample_id);
      failed.put(valid_utf8(where + failure.reason)).put(valid_utf8(failure.log)).put(failure.cell_id).run();
    }
  });
}

void ResultsStore::settle_cell(const std::string& cell_id, std::span<const MetricValue> values) {
  SQLite::Database& database = *reader_.database_;
  transact(database, "end a cell", [&] {
    Writer(database, "DELETE FROM cell_values WHERE cell_id = ?").put(cell_id).run();
    Writer insert(database,
                  "INSERT INTO cell_values (cell_id, metric, clock, value, unit, storage) VALUES (?, ?, ?, ?, ?, ?)");
    for (const MetricValue& value : values) {
      insert.put(cell_id).put(value.metric).put(name(value.clock)).put(value.value).put(value.unit);
      insert.put(name(value.storage)).run();
    }
    const bool active = Writer(database,
                               "UPDATE cells SET state = 'done', reason = '' WHERE cell_id = ?1 AND state <> 'failed' "
                               "AND EXISTS (SELECT 1 FROM samples WHERE cell_id = ?1 AND active = 1)")
                            .put(cell_id)
                            .run() > 0;
    if (active) return;
    Writer(database,
           "UPDATE cells SET state = 'inactive', reason = 'the method acted on none of ' || (SELECT count(*) FROM "
           "samples WHERE cell_id = ?1) || ' samples' WHERE cell_id = ?1 AND state <> 'failed'")
        .put(cell_id)
        .run();
  });
}

void ResultsStore::set_judges(const std::string& experiment, std::span<const JudgeRecord> judges, bool replace) {
  SQLite::Database& database = *reader_.database_;
  transact(database, "record the judge", [&] {
    for (const JudgeRecord& known : reader_.judges(experiment)) {
      const auto same = [&](const JudgeRecord& judge) { return judge.metric == known.metric; };
      const auto judge = std::ranges::find_if(judges, same);
      if (judge == judges.end()) continue;
      if (std::tie(judge->model, judge->question_sha256) == std::tie(known.model, known.question_sha256)) continue;
      if (!replace) {
        fail({.place = path_.string(),
              .found = fmt::format("{} of {} by the judge {}, question {}", known.metric, experiment, known.model,
                                   known.question_sha256.substr(0, kShownDigits)),
              .expected = fmt::format("marks of one judge, not of {}, question {}, beside them", judge->model,
                                      judge->question_sha256.substr(0, kShownDigits)),
              .action = "--replace takes the other's marks away and asks anew"});
      }
      Writer(database,
             "DELETE FROM sample_values WHERE metric = ? AND cell_id IN (SELECT cell_id FROM cells WHERE experiment = "
             "?)")
          .put(known.metric)
          .put(experiment)
          .run();
    }
    Writer insert(database, "INSERT OR REPLACE INTO judges VALUES (?, ?, ?, ?)");
    for (const JudgeRecord& judge : judges) {
      insert.put(experiment).put(judge.metric).put(judge.model).put(judge.question_sha256).run();
    }
  });
}

void ResultsStore::add_marks(const JudgeRequest& request, std::span<const MetricValue> marks) {
  transact(*reader_.database_, "write marks", [&] {
    Writer insert(*reader_.database_,
                  "INSERT INTO sample_values (cell_id, sample_id, metric, clock, value, unit, storage) VALUES (?, ?, "
                  "?, ?, ?, ?, ?)");
    for (const MetricValue& mark : marks) {
      insert.put(request.cell_id).put(request.sample_id).put(mark.metric).put(name(mark.clock)).put(mark.value);
      insert.put(mark.unit).put(name(mark.storage)).run();
    }
  });
}

}  // namespace kvarena::results
