#pragma once
// Inside the results folder: rows of a query's answer, read column by column.

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "harness/core/error.h"
#include "harness/results/database.h"
#include "harness/results/records.h"
#include "harness/results/series_text.h"

namespace kvarena::results {

/// The columns of one row of an answer, read in order. What this program never writes is an error: the file was
/// damaged, or changed by another program.
class Columns {
 public:
  explicit Columns(SQLite::Statement& statement) : statement_(&statement) {}

  /// Text; that of a column whose name ends in _json is JSON.
  std::string text() {
    const SQLite::Column column = next();
    std::string value = column.getString();
    const std::string_view name = column.getName();
    if (name.ends_with("_json") && !nlohmann::json::accept(value)) fail(damage(column, value, "JSON"));
    return value;
  }
  /// Text where it lies, until the next row.
  std::string_view view() { return view_of(next()); }
  int64_t integer() { return next().getInt64(); }
  bool flag() { return integer() != 0; }
  /// NaN where there is none.
  double number() {
    const SQLite::Column column = next();
    return column.isNull() ? std::numeric_limits<double>::quiet_NaN() : column.getDouble();
  }
  std::vector<float> series() {
    const SQLite::Column column = next();
    const std::string_view value = view_of(column);
    auto numbers = parse_series(value);
    if (!numbers) fail(damage(column, value, "a list of numbers"));
    return *std::move(numbers);
  }
  /// The one of `all` whose name is here.
  template <typename Enum, size_t N>
  Enum one_of(const std::array<Enum, N>& all) {
    const SQLite::Column column = next();
    const std::string_view value = view_of(column);
    for (const Enum each : all) {
      if (results::name(each) == value) return each;
    }
    fail(damage(column, value, "a word of the schema"));
  }
  Clock clock() { return one_of(std::array{Clock::none, Clock::measured, Clock::modelled}); }
  Storage storage() { return one_of(std::array{Storage::real, Storage::emulated, Storage::simulated}); }

 private:
  SQLite::Column next() { return statement_->getColumn(column_++); }
  static std::string_view view_of(const SQLite::Column& column) {
    const char* text = column.getText();
    return {text, static_cast<size_t>(column.getBytes())};
  }
  static ErrorParts damage(const SQLite::Column& column, std::string_view value, const char* expected) {
    return {.place = column.getName(), .found = fmt::format("\"{:.80}\"", value), .expected = expected};
  }

  SQLite::Statement* statement_;
  int column_ = 0;
};

/// Runs a query and calls `use(columns)` with each of its rows.
template <typename Use>
void for_rows(SQLite::Database& database, const char* sql, const std::vector<std::string>& arguments, Use&& use) {
  checked(database.getFilename(), "answer a query", [&] {
    SQLite::Statement statement(database, sql);
    for (size_t i = 0; i < arguments.size(); ++i) statement.bind(static_cast<int>(i) + 1, arguments[i]);
    while (statement.executeStep()) {
      Columns columns(statement);
      try {
        use(columns);
      } catch (const UserError& error) {
        fail_damaged(database.getFilename(), error.what());
      }
    }
  });
}

/// Runs a query and makes one `Row` of each of its rows by `make(columns)`.
template <typename Row, typename Make>
std::vector<Row> select(SQLite::Database& database, const char* sql, const std::vector<std::string>& arguments,
                        Make&& make) {
  std::vector<Row> rows;
  for_rows(database, sql, arguments, [&](Columns& next) { rows.push_back(make(next)); });
  return rows;
}

}  // namespace kvarena::results
