// One database from several that were filled side by side.

#include <fmt/format.h>

#include <array>
#include <string>

#include "harness/core/error.h"
#include "harness/results/database.h"
#include "harness/results/results_store.h"
#include "harness/results/soundness.h"

namespace kvarena::results {
namespace {

namespace fs = std::filesystem;

/// A question whose answer is nothing where both databases agree; otherwise the first column says where they do not.
struct Contradiction {
  const char* what;
  const char* sql;
};

constexpr std::array kContradictions = {
    Contradiction{
        "made from another config",
        "SELECT 'experiment ' || experiment FROM part.experiments p JOIN main.experiments m USING (experiment) "
        "WHERE p.config_json <> m.config_json"},
    Contradiction{"under other conditions (settings, data or program)",
                  "SELECT 'model ' || model || ', workload ' || workload || ', method ' || method || ', ' || kind FROM "
                  "part.cells p JOIN main.cells m USING (experiment, kind, model, workload, method) WHERE p.superseded "
                  "= 0 AND m.superseded = 0 AND p.cell_id <> m.cell_id"},
    Contradiction{"with another meaning",
                  "SELECT 'metric ' || metric FROM part.metrics p JOIN main.metrics m USING (metric) WHERE "
                  "(p.title, p.unit, p.better, p.table_scale) IS NOT (m.title, m.unit, m.better, m.table_scale)"},
    Contradiction{"marked by another judge",
                  "SELECT 'experiment ' || experiment || ', metric ' || metric FROM part.judges p JOIN main.judges m "
                  "USING (experiment, metric) WHERE (p.model, p.question_sha256) IS NOT (m.model, m.question_sha256)"},
    Contradiction{
        "with another answer",
        "SELECT 'cell ' || cell_id || ', sample ' || sample_id FROM part.samples p JOIN main.samples m USING "
        "(cell_id, sample_id) WHERE (p.sample_index, p.prompt_sha256, p.prompt_tokens, p.truncated_tokens, "
        "p.output_tokens, p.prediction, p.references_json, p.finish_reason, p.active, p.activity_json, p.context) IS "
        "NOT "
        "(m.sample_index, m.prompt_sha256, m.prompt_tokens, m.truncated_tokens, m.output_tokens, m.prediction, "
        "m.references_json, m.finish_reason, m.active, m.activity_json, m.context)"},
    Contradiction{"with other values of the whole",
                  "SELECT 'cell ' || cell_id FROM part.cell_values p JOIN main.cell_values m USING (cell_id, metric, "
                  "clock) WHERE clock <> 'measured' AND (p.value, p.unit, p.storage) IS NOT (m.value, m.unit, "
                  "m.storage)"},
};

/// Rows of samples that both databases hold, without times: the two sides of these must be equal.
struct Detail {
  const char* table;
  const char* columns;
  const char* condition;
};

constexpr std::array kDetails = {
    // One part may be judged before the other.
    Detail{"sample_values", "cell_id, sample_id, metric, clock, value, unit, storage",
           "clock <> 'measured' AND metric NOT IN (SELECT metric FROM part.judges UNION SELECT metric FROM "
           "main.judges)"},
    Detail{"series", "cell_id, sample_id, name, clock, values_json, unit, storage", "clock <> 'measured'"},
    Detail{"events", "cell_id, sample_id, position, event, data_json", "1"},
};

/// Statements in order: rows after those they belong to. Where both hold a cell, no choice depends on which came first.
constexpr std::array kAdditions = {
    "INSERT OR IGNORE INTO main.experiments SELECT * FROM part.experiments",
    "INSERT OR IGNORE INTO main.published SELECT * FROM part.published",
    "INSERT OR IGNORE INTO main.metrics SELECT * FROM part.metrics",
    "INSERT INTO main.runs SELECT * FROM part.runs WHERE true ON CONFLICT DO UPDATE SET state = excluded.state, "
    "finished_at = excluded.finished_at WHERE excluded.finished_at > finished_at",
    "INSERT OR IGNORE INTO main.run_inputs SELECT * FROM part.run_inputs",
    "INSERT INTO main.cells SELECT * FROM part.cells WHERE true ON CONFLICT DO UPDATE SET "
    "position = min(position, excluded.position), planned_samples = max(planned_samples, excluded.planned_samples), "
    "left_out_samples = max(left_out_samples, excluded.left_out_samples), "
    "baseline = max(baseline, excluded.baseline), superseded = min(superseded, excluded.superseded), "
    "state = CASE WHEN 'failed' IN (state, excluded.state) THEN 'failed' "
    "WHEN excluded.state IN ('done', 'inactive') THEN excluded.state ELSE state END, "
    "(reason, failure_log) = (SELECT reason, failure_log FROM (SELECT cells.state, cells.reason, cells.failure_log "
    "UNION ALL SELECT excluded.state, excluded.reason, excluded.failure_log) ORDER BY state <> 'failed', reason, "
    "failure_log LIMIT 1)",
    "INSERT INTO main.samples SELECT * FROM part.samples WHERE (cell_id, sample_id) IN fresh",
    "INSERT INTO main.sample_values SELECT * FROM part.sample_values WHERE (cell_id, sample_id) IN fresh",
    "INSERT OR IGNORE INTO main.judges SELECT * FROM part.judges",
    "INSERT OR IGNORE INTO main.sample_values SELECT * FROM part.sample_values WHERE metric IN (SELECT metric FROM "
    "part.judges)",
    "INSERT INTO main.series SELECT * FROM part.series WHERE (cell_id, sample_id) IN fresh",
    "INSERT INTO main.events SELECT * FROM part.events WHERE (cell_id, sample_id) IN fresh",
    "INSERT OR IGNORE INTO main.cell_values SELECT * FROM part.cell_values",
    "INSERT INTO main.cell_peaks SELECT * FROM part.cell_peaks WHERE true ON CONFLICT DO UPDATE SET "
    "peak_bytes = max(peak_bytes, excluded.peak_bytes)",
    "UPDATE main.cells SET wall_s = (SELECT coalesce(sum(s.wall_s), 0.0) FROM main.samples s WHERE s.cell_id = "
    "cells.cell_id) WHERE cell_id IN (SELECT cell_id FROM part.cells)",
    // A cell that failed nowhere is as far as its samples are. One of kind serving has values of its whole, which are
    // written where it ends: until then it has not ended.
    "UPDATE main.cells SET reason = '', state = CASE "
    "WHEN NOT EXISTS (SELECT 1 FROM main.samples s WHERE s.cell_id = cells.cell_id) THEN 'pending' "
    "WHEN (SELECT count(*) FROM main.samples s WHERE s.cell_id = cells.cell_id AND s.sample_index < planned_samples) < "
    "planned_samples OR (kind = 'serving' AND state NOT IN ('done', 'inactive')) THEN 'running' "
    "WHEN EXISTS (SELECT 1 FROM main.samples s WHERE s.cell_id = cells.cell_id AND s.active = 1) THEN 'done' "
    "ELSE 'inactive' END WHERE state NOT IN ('failed', 'missing') AND cell_id IN (SELECT cell_id FROM part.cells)",
    "UPDATE main.cells SET reason = 'the method acted on none of ' || (SELECT count(*) FROM main.samples s WHERE "
    "s.cell_id = cells.cell_id) || ' samples' WHERE state = 'inactive' AND cell_id IN (SELECT cell_id FROM part.cells)",
};

/// The other database beside ours, as long as this lives.
class Attached {
 public:
  Attached(SQLite::Database& database, const fs::path& part) : database_(database) {
    SQLite::Statement attach(database_, "ATTACH DATABASE ? AS part");
    attach.bind(1, sqlite_name(part));
    attach.exec();
  }
  ~Attached() { (void)database_.tryExec("DETACH DATABASE part"); }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

 private:
  SQLite::Database& database_;
};

int64_t count(SQLite::Database& database, const std::string& sql) { return database.execAndGet(sql).getInt64(); }

[[noreturn]] void refuse(const fs::path& into, const fs::path& part, const std::string& where, const char* what) {
  fail({.place = part.string(),
        .found = fmt::format("{} {} than in {}", where, what, into.string()),
        .expected = "parts of one experiment, evaluated by one program on one set of data",
        .action = "merge what belongs together, or look at why they differ; nothing of it was merged"});
}

void refuse_contradictions(SQLite::Database& database, const fs::path& into, const fs::path& part) {
  for (const Contradiction& contradiction : kContradictions) {
    SQLite::Statement statement(database, std::string(contradiction.sql) + " LIMIT 1");
    if (statement.executeStep()) refuse(into, part, statement.getColumn(0).getString(), contradiction.what);
  }
  for (const Detail& detail : kDetails) {
    for (const auto& [one, other] : {std::pair{"part", "main"}, std::pair{"main", "part"}}) {
      // The cell and the sample of a row that the other side lacks, though it holds the sample.
      const std::string sql = fmt::format(
          "SELECT 'cell ' || cell_id || ', sample ' || sample_id FROM (SELECT {1} FROM {2}.{0} WHERE {3} AND "
          "(cell_id, sample_id) IN (SELECT cell_id, sample_id FROM {4}.samples) EXCEPT SELECT {1} FROM {4}.{0} "
          "WHERE {3}) LIMIT 1",
          detail.table, detail.columns, one, detail.condition, other);
      SQLite::Statement statement(database, sql);
      if (statement.executeStep()) refuse(into, part, statement.getColumn(0).getString(), "with other values");
    }
  }
}

}  // namespace

MergeSummary ResultsStore::merge(const fs::path& part) {
  if (fs::exists(part) && fs::equivalent(path_, part)) {
    fail({.place = part.string(), .found = "the very database that is merged into"});
  }
  refuse_faults(part);
  SQLite::Database& database = *reader_.database_;
  MergeSummary summary;
  checked(path_.string(), fmt::format("merge {}", part.string()), [&] {
    const Attached attached(database, part);
    SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
    refuse_contradictions(database, path_, part);
    database.exec(
        "CREATE TEMP TABLE fresh AS SELECT cell_id, sample_id FROM part.samples EXCEPT SELECT cell_id, sample_id FROM "
        "main.samples");
    summary.samples = count(database, "SELECT count(*) FROM fresh");
    summary.there = count(database, "SELECT count(*) FROM part.samples") - summary.samples;
    for (const char* sql : kAdditions) database.exec(sql);
    database.exec("DROP TABLE fresh");
    const std::string in_force = "SELECT count(*) FROM main.cells WHERE superseded = 0";
    summary.cells = count(database, in_force);
    summary.ended = count(database, in_force + " AND state IN ('done', 'inactive', 'failed', 'missing')");
    transaction.commit();
  });
  return summary;
}

}  // namespace kvarena::results
