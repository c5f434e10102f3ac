// The digest that proves that two databases tell the same results.

#include <fmt/format.h>

#include <array>
#include <bit>

#include "harness/core/files.h"
#include "harness/results/database.h"
#include "harness/results/results_reader.h"

namespace kvarena::results {
namespace {

/// Queries of the content that each table must reproduce, ordered by its key; without times, hosts and durations.
constexpr std::array kContent = {
    "SELECT 'experiments', experiment, title, config_json, table_json FROM experiments ORDER BY 2",
    "SELECT 'published', experiment, model, workload, method, metric, source, value, unit, note, statistic, "
    "bound, upper, against_json FROM published ORDER BY 2, 3, 4, 5, 6, 7",
    "SELECT 'metrics', metric, title, unit, better, table_scale FROM metrics ORDER BY 2",
    "SELECT 'judges', experiment, metric, model, question_sha256 FROM judges ORDER BY 2, 3",
    "SELECT 'cells', cell_id, experiment, kind, model, model_json, workload, workload_json, method, method_name, "
    "settings_json, engine_json, protocol_json, baseline, position, planned_samples, left_out_samples, state, reason, "
    "superseded FROM cells ORDER BY 2",
    "SELECT 'cell_peaks', cell_id, tier, peak_bytes FROM cell_peaks ORDER BY 2, 3",
    "SELECT 'samples', cell_id, sample_id, sample_index, prompt_sha256, prompt_tokens, truncated_tokens, "
    "output_tokens, prediction, references_json, finish_reason, active, activity_json, context FROM samples ORDER BY "
    "2, 3",
    "SELECT 'sample_values', cell_id, sample_id, metric, clock, unit, storage, "
    "CASE clock WHEN 'measured' THEN '' ELSE value END FROM sample_values ORDER BY 2, 3, 4, 5",
    "SELECT 'cell_values', cell_id, metric, clock, unit, storage, CASE clock WHEN 'measured' THEN '' ELSE value END "
    "FROM cell_values ORDER BY 2, 3, 4",
    "SELECT 'series', cell_id, sample_id, name, clock, unit, storage, "
    "CASE clock WHEN 'measured' THEN '' ELSE values_json END FROM series ORDER BY 2, 3, 4, 5",
    "SELECT 'events', cell_id, sample_id, position, event, data_json FROM events ORDER BY 2, 3, 4",
};

/// Type and length before each field, so that no two rows write the same text.
void append(std::string& text, const SQLite::Column& column) {
  if (column.isNull()) {
    text += "n;";
  } else if (column.isInteger()) {
    fmt::format_to(std::back_inserter(text), "i{};", column.getInt64());
  } else if (column.isFloat()) {
    fmt::format_to(std::back_inserter(text), "f{:016x};", std::bit_cast<uint64_t>(column.getDouble()));
  } else {
    const std::string value = column.getString();
    fmt::format_to(std::back_inserter(text), "t{}:{};", value.size(), value);
  }
}

}  // namespace

std::string ResultsReader::content_digest() const {
  return checked(database_->getFilename(), "compute its digest", [&] {
    // One transaction, so that a run that writes meanwhile does not show half of a batch.
    SQLite::Transaction snapshot(*database_);
    constexpr size_t kPart = 1 << 20;  // hashed and forgotten when full: a database may be larger than memory
    std::string text;
    for (const char* sql : kContent) {
      SQLite::Statement statement(*database_, sql);
      while (statement.executeStep()) {
        for (int i = 0; i < statement.getColumnCount(); ++i) append(text, statement.getColumn(i));
        text += '\n';
        if (text.size() > kPart) text = sha256(text);
      }
    }
    return sha256(text);
  });
}

}  // namespace kvarena::results
