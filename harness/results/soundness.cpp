#include "harness/results/soundness.h"

#include <fmt/format.h>

#include <array>

#include "harness/results/database.h"

namespace kvarena::results {
namespace {

constexpr int kOfAKind = 5;  // a damaged file has thousands of faults that say the same

/// A query whose rows are faults: one column, what is wrong with which row.
struct Rule {
  const char* what;
  const char* query;
};

constexpr std::array kRules = {
    Rule{"a cell of no experiment",
         "SELECT cell_id FROM cells WHERE experiment NOT IN (SELECT experiment FROM experiments)"},
    Rule{"a sample of no cell",
         "SELECT cell_id || ' ' || sample_id FROM samples WHERE cell_id NOT IN (SELECT cell_id FROM cells)"},
    Rule{"a value of no sample",
         "SELECT cell_id || ' ' || sample_id || ' ' || metric FROM sample_values v WHERE NOT EXISTS "
         "(SELECT 1 FROM samples s WHERE s.cell_id = v.cell_id AND s.sample_id = v.sample_id)"},
    Rule{"a series of no sample",
         "SELECT cell_id || ' ' || sample_id || ' ' || name FROM series v WHERE NOT EXISTS "
         "(SELECT 1 FROM samples s WHERE s.cell_id = v.cell_id AND s.sample_id = v.sample_id)"},
    Rule{"an event of no sample",
         "SELECT cell_id || ' ' || sample_id || ' ' || position FROM events v WHERE NOT EXISTS "
         "(SELECT 1 FROM samples s WHERE s.cell_id = v.cell_id AND s.sample_id = v.sample_id)"},
    Rule{"peak bytes of no cell",
         "SELECT cell_id || ' ' || tier FROM cell_peaks WHERE cell_id NOT IN (SELECT cell_id FROM cells)"},
    Rule{"a value of no cell",
         "SELECT cell_id || ' ' || metric FROM cell_values WHERE cell_id NOT IN (SELECT cell_id FROM cells)"},
    Rule{"a cell that is called done and lacks samples",
         "SELECT cell_id || ', ' || done_samples || ' of ' || planned_samples FROM v_cells "
         "WHERE state = 'done' AND done_samples < planned_samples"},
    Rule{"a series that is not as long as it says",
         "SELECT cell_id || ' ' || sample_id || ' ' || name FROM series WHERE NOT json_valid(values_json) "
         "OR json_array_length(values_json) IS NOT length"},
    Rule{"a sample whose columns of JSON are none",
         "SELECT cell_id || ' ' || sample_id FROM samples WHERE NOT json_valid(references_json) "
         "OR NOT json_valid(activity_json)"},
    Rule{"an experiment whose columns of JSON are none",
         "SELECT experiment FROM experiments WHERE NOT json_valid(config_json) OR NOT json_valid(table_json)"},
    Rule{"a cell whose columns of JSON are none",
         "SELECT cell_id FROM cells WHERE NOT json_valid(model_json) OR NOT json_valid(workload_json) OR "
         "NOT json_valid(settings_json) OR NOT json_valid(engine_json) OR NOT json_valid(protocol_json)"},
    Rule{"a cell of no known kind or state",
         "SELECT cell_id FROM cells WHERE kind NOT IN ('quality', 'timing', 'noise_floor', 'serving') OR "
         "state NOT IN ('pending', 'running', 'done', 'failed', 'inactive', 'missing')"},
    Rule{"a number of no known clock or storage",
         "SELECT cell_id || ' ' || name FROM (SELECT cell_id, metric AS name, clock, storage FROM sample_values UNION "
         "ALL SELECT cell_id, metric, clock, storage FROM cell_values UNION ALL SELECT cell_id, name, clock, storage "
         "FROM series) WHERE clock NOT IN ('none', 'measured', 'modelled') OR storage NOT IN ('real', 'emulated', "
         "'simulated')"},
    Rule{"an event whose data is no JSON",
         "SELECT cell_id || ' ' || sample_id || ' ' || position FROM events WHERE NOT json_valid(data_json)"},
};

void collect(SQLite::Database& database, const Rule& rule, std::vector<std::string>& faults) {
  SQLite::Statement rows(database, fmt::format("{} LIMIT {}", rule.query, kOfAKind));
  while (rows.executeStep()) faults.push_back(fmt::format("{}: {}", rule.what, rows.getColumn(0).getString()));
}

}  // namespace

std::vector<std::string> find_faults(const std::filesystem::path& path) {
  const auto database = open_to_read(path);
  return checked(path.string(), "be checked", [&] {
    std::vector<std::string> faults;
    SQLite::Statement pages(*database, fmt::format("PRAGMA integrity_check({})", kOfAKind));
    while (pages.executeStep()) {
      const std::string found = pages.getColumn(0).getString();
      if (found != "ok") faults.push_back("pages: " + found);
    }
    if (!faults.empty()) return faults;  // rows of damaged pages prove nothing
    for (const Rule& rule : kRules) collect(*database, rule, faults);
    return faults;
  });
}

void refuse_faults(const std::filesystem::path& path) {
  const std::vector<std::string> faults = find_faults(path);
  if (!faults.empty()) fail_damaged(path.string(), faults.front());
}

}  // namespace kvarena::results
