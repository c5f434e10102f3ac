#include <SQLiteCpp/SQLiteCpp.h>

#include <array>
#include <cmath>
#include <sstream>

#include "harness/core/files.h"
#include "harness/experiment/status.h"
#include "harness/results/results_store.h"
#include "harness/results/soundness.h"
#include "reports/compare.h"
#include "reports/experiment_report.h"
#include "reports/history.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
namespace results = kvarena::results;
namespace reports = kvarena::reports;

results::CellRecord cell_of(const std::string& method, int64_t position, results::CellKind kind) {
  return {.cell_id = method + std::string(results::name(kind)),
          .experiment = "e",
          .kind = kind,
          .model = "m",
          .workload = "w",
          .method = method,
          .method_name = method,
          .settings_json = R"({"keep": 0.5})",
          .protocol_json = R"({"dtype": "bf16", "metrics": "qa_f1 v1"})",
          .protocol_sha256 = "card",
          .baseline = position == 0,
          .position = position,
          .planned_samples = 3};
}

results::SampleResult sample_of(const std::string& cell, int64_t index, double score) {
  return {
      .cell_id = cell,
      .sample_id = std::to_string(index),
      .sample_index = index,
      .prompt_sha256 = std::to_string(index),
      .prompt_tokens = 100,
      .output_tokens = 3,
      .prediction = "an answer",
      .references_json = R"(["an answer"])",
      .finish_reason = "stop",
      .activity_json = R"({"entries_dropped": 12})",
      .wall_s = 0.25,
      .values = {{.metric = "qa_f1", .value = score, .unit = "fraction"},
                 {.metric = "bytes_per_token", .value = 100 * score, .unit = "bytes"},
                 {.metric = "time_to_first_token_ms", .value = 12.5, .unit = "ms", .clock = results::Clock::measured}},
      .series = {{.name = "kl_nats", .values = {0.125F, std::nanf(""), 3.5F}, .unit = "nats"}},
      .events = {{.event = "verify", .at_ms = 4.5, .data_json = R"({"accepted": 3})"}},
      .peak_bytes = {{"device", 1000}}};
}

/// A database of a finished run, as bytes.
std::string sound_database(const fs::path& path) {
  {
    auto store = results::ResultsStore::open_or_create(path);
    const std::string run = store.begin_run({.experiment = "e",
                                             .title = "t",
                                             .published = {{.model = "m",
                                                            .workload = "w",
                                                            .method = "b",
                                                            .metric = "qa_f1",
                                                            .value = 40,
                                                            .unit = "percent",
                                                            .source = "s",
                                                            .note = ""}}},
                                            {.experiment = "e"});
    store.define_metrics(std::array{results::MetricDefinition{.metric = "qa_f1",
                                                              .title = "F1",
                                                              .unit = "fraction",
                                                              .better = results::Direction::higher,
                                                              .table_scale = 100}});
    for (const results::CellKind kind : {results::CellKind::quality, results::CellKind::timing}) {
      for (const auto& [method, position] : {std::pair{"a", 0}, {"b", 1}}) {
        const auto cell = cell_of(method, position, kind);
        store.upsert_cells(std::array{cell});
        for (int64_t i = 0; i < 3; ++i) {
          store.commit(run,
                       std::array{sample_of(cell.cell_id, i, position == 0 ? 0.5 : 0.25 * static_cast<double>(i))});
        }
        store.settle_cell(cell.cell_id, {});
      }
    }
    store.finish_run(run, results::RunState::finished);
  }
  return kvarena::read_file(path);
}

/// Sets a column of a row, which line says: "table column row type value". Types as SQLite's: n, i, f, t.
void change(SQLite::Database& database, const std::string& line) {
  std::istringstream words(line);
  std::string table, column, type, value;
  int64_t row = 0;
  if (!(words >> table >> column >> row >> type)) return;
  std::getline(words >> std::ws, value);
  const auto is_name = [](const std::string& word) {
    return !word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == std::string::npos;
  };
  if (!is_name(table) || !is_name(column)) return;
  try {
    SQLite::Statement rows(database,
                           "SELECT group_concat('\"' || name || '\"') FROM pragma_table_info(?) WHERE pk > 0");
    rows.bind(1, table);
    if (!rows.executeStep() || rows.getColumn(0).isNull()) return;
    const std::string keys = "(" + rows.getColumn(0).getString() + ")";
    SQLite::Statement update(database, "UPDATE " + table + " SET " + column + " = ? WHERE " + keys + " IN (SELECT " +
                                           keys.substr(1, keys.size() - 2) + " FROM " + table + " LIMIT 1 OFFSET ?)");
    if (type == "i") update.bind(1, static_cast<int64_t>(std::strtoll(value.c_str(), nullptr, 10)));
    if (type == "f") update.bind(1, std::strtod(value.c_str(), nullptr));
    if (type == "t") update.bind(1, value);
    update.bind(2, row);
    (void)update.exec();
  } catch (const SQLite::Exception&) {  // no such column, or a value that its type does not hold
  }
}

void report_on(const results::ResultsReader& reader, const std::string& experiment,
               const reports::ExperimentData& sound) {
  using kvarena::fuzz::try_to;
  try_to([&] {
    const reports::Document document =
        reports::experiment_report(reports::read_experiment(reader, experiment), {.allow_unlike_cards = true});
    for (const auto format :
         {reports::Format::html, reports::Format::markdown, reports::Format::latex, reports::Format::csv}) {
      (void)reports::render(document, format);
    }
  });
  const reports::ExperimentData data = reports::read_run(reader, experiment);
  try_to([&] { (void)reports::compare(sound, data, {.margin = 1, .fail_on_drop = 2, .allow_unlike = true}); });
  try_to([&] { (void)reports::history({{"before", sound}, {"after", data}}); });
}

}  // namespace

/// The bytes are lines, each of which puts a value into a row of a sound database; then it is read as `report`,
/// `compare`, `history`, `status`, `merge` and `doctor` do.
KVARENA_FUZZ(results_rows, data) {
  using kvarena::fuzz::try_to;
  static const kvarena::testing::TemporaryFolder folder;
  static const std::string sound = sound_database(folder.path() / "sound.db");
  static const reports::ExperimentData before =
      reports::read_run(results::ResultsReader(folder.path() / "sound.db"), "e");
  const fs::path path = folder.path() / "changed.db";
  for (const char* end : {"", "-wal", "-shm"}) fs::remove(path.string() + end);
  kvarena::write_file(path, sound);
  {
    SQLite::Database database(path.string(), SQLite::OPEN_READWRITE);
    std::istringstream lines{std::string(kvarena::fuzz::text_of(data.first(std::min<size_t>(data.size(), 4096))))};
    for (std::string line; std::getline(lines, line);) change(database, line);
  }
  try_to([&] { (void)results::find_faults(path); });
  try_to([&] {
    const results::ResultsReader reader(path);
    constexpr int64_t kNow = 1'800'000'000;
    try_to([&] { (void)kvarena::experiment::experiment_status(reader, kNow); });
    for (const auto& record : reader.experiments()) {
      try_to([&] { report_on(reader, record.experiment, before); });
      try_to([&] { (void)reader.runs(record.experiment); });
    }
    for (const results::CellRow& row : reader.cells("e", /*superseded=*/true)) {
      try_to([&] { (void)reader.events(row.cell.cell_id); });
      try_to([&] { (void)reader.samples(row.cell.cell_id); });
    }
  });
  try_to([&] {
    const fs::path whole = folder.path() / "whole.db";
    for (const char* end : {"", "-wal", "-shm"}) fs::remove(whole.string() + end);
    auto store = results::ResultsStore::open_or_create(whole);
    (void)store.merge(path);
  });
}
