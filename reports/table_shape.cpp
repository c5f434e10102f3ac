#include "reports/table_shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "harness/core/error.h"
#include "reports/cell_text.h"
#include "reports/escape.h"

namespace kvarena::reports {
namespace {

using nlohmann::json;
using Key = std::vector<std::string>;  // values of some dimensions

constexpr const char* kMetric = "metric";
constexpr const char* kMethod = "method";

Key key_of(const PlacedCell& cell, const std::vector<std::string>& dimensions) {
  Key key;
  for (const std::string& dimension : dimensions) key.push_back(cell.place.at(dimension));
  return key;
}

/// Keys in the order of their first cell.
std::vector<Key> keys_of(const std::vector<const PlacedCell*>& cells, const std::vector<std::string>& dimensions) {
  std::vector<Key> keys;
  std::set<Key> seen;
  for (const PlacedCell* cell : cells) {
    Key key = key_of(*cell, dimensions);
    if (seen.insert(key).second) keys.push_back(std::move(key));
  }
  return keys;
}

/// The dimensions that tell cells apart; the last one when none does.
std::vector<std::string> telling(const std::vector<PlacedCell>& cells, const std::vector<std::string>& dimensions) {
  std::vector<std::string> kept;
  for (const std::string& dimension : dimensions) {
    const std::string& first = cells.front().place.at(dimension);
    if (std::ranges::any_of(cells, [&](const PlacedCell& cell) { return cell.place.at(dimension) != first; }))
      kept.push_back(dimension);
  }
  if (kept.empty() && !dimensions.empty()) kept.push_back(dimensions.back());
  return kept;
}

std::string head(std::string word) {
  word[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(word[0])));
  return word;
}

std::string with_unit(const std::string& metric, const MetricLook& look) {
  return look.unit.empty() || look.unit == metric ? metric : metric + ", " + look.unit;
}

/// One table in work: the cells of one value of the dimensions that nothing names.
class Layout {
 public:
  Layout(std::vector<const PlacedCell*> cells, std::vector<std::string> rows, std::vector<std::string> columns,
         const TableShape& shape, const Table& frame)
      : cells_(std::move(cells)),
        rows_(std::move(rows)),
        columns_(std::move(columns)),
        shape_(shape),
        frame_(frame),
        table_{.id = frame.id, .title = frame.title, .caption = frame.caption, .cell = shape.cell} {}

  Table lay_out(const std::vector<MethodColumn>& of_methods, const std::map<std::string, TableCell>& means) {
    const std::vector<Key> row_keys = keys_of(cells_, rows_), column_keys = keys_of(cells_, columns_);
    for (const std::string& dimension : rows_) table_.columns.push_back({.title = head(dimension), .numeric = false});
    const bool tells_metric = rows_tell_metric();
    if (tells_metric) table_.columns.push_back({.title = "Metric", .numeric = false});
    const bool methods_are_rows = std::ranges::count(rows_, kMethod) > 0;
    for (const Key& key : column_keys) table_.columns.push_back(column_of(key));
    const std::optional<MetricLook> look = shape_.average ? one_look() : std::nullopt;
    const size_t mean_at = table_.columns.size();
    if (look) table_.columns.push_back(number_column("Mean", look));
    if (shape_.average && !look) table_.caption += " No mean: the columns are not read alike.";
    if (methods_are_rows) {
      for (const MethodColumn& side : of_methods) table_.columns.push_back(side.column);
    }
    for (const Key& key : row_keys) {
      const std::vector<const PlacedCell*> in_row = row_cells(key);
      TableRow row{.role = in_row.front()->role, .badge = in_row.front()->badge};
      for (const std::string& value : key) row.cells.push_back(text_cell(value));
      if (tells_metric)
        row.cells.push_back(text_cell(with_unit(in_row.front()->place.at(kMetric), in_row.front()->look)));
      row.peers = methods_are_rows ? peers_of(*in_row.front(), key) : -1;
      const size_t first = row.cells.size();
      for (const Key& column : column_keys) row.cells.push_back(cell_at(in_row, column));
      if (look) row.cells.push_back(mean_of(row, first, look->format, said_of(*in_row.front(), means)));
      if (methods_are_rows) add_sides(row, *in_row.front(), of_methods);
      table_.rows.push_back(std::move(row));
    }
    mark_best(table_);
    // A mean of means has no interval here, so nothing says which of two is inside noise.
    if (look) {
      for (TableRow& row : table_.rows) row.cells[mean_at].best = false;
    }
    return std::move(table_);
  }

 private:
  [[nodiscard]] std::vector<const PlacedCell*> row_cells(const Key& key) const {
    std::vector<const PlacedCell*> found;
    std::ranges::copy_if(cells_, std::back_inserter(found),
                         [&](const PlacedCell* cell) { return key_of(*cell, rows_) == key; });
    return found;
  }

  /// A column says which metric it holds where workloads or metrics make columns; elsewhere the row must, unless there
  /// is one metric for all.
  [[nodiscard]] bool rows_tell_metric() const {
    const auto is_column = [&](const char* dimension) { return std::ranges::count(columns_, dimension) > 0; };
    if (is_column(kMetric) || is_column("workload") || std::ranges::count(rows_, kMetric) > 0) return false;
    const std::string& first = cells_.front()->place.at(kMetric);
    return std::ranges::any_of(cells_, [&](const PlacedCell* cell) { return cell->place.at(kMetric) != first; });
  }

  /// How all numbers are read, where they are read alike.
  [[nodiscard]] std::optional<MetricLook> one_look() const {
    std::optional<MetricLook> first;
    for (const PlacedCell* cell : cells_) {
      MetricLook look = cell->look;
      look.title.clear();
      if (!first) first = look;
      if (!(look == *first)) return std::nullopt;
    }
    return first;
  }

  static Column number_column(std::string title, const std::optional<MetricLook>& look) {
    Column column{.title = std::move(title)};
    if (!look) return column;
    column.unit = look->unit;
    column.better = look->better;
    column.format = look->format;
    return column;
  }

  [[nodiscard]] Column column_of(const Key& key) const {
    std::optional<MetricLook> look;
    std::string metric;
    bool alike = true;
    for (const PlacedCell* cell : cells_) {
      if (key_of(*cell, columns_) != key) continue;
      const std::string& name = cell->place.at(kMetric);
      if (!look) {
        look = cell->look;
        metric = name;
      }
      alike = alike && name == metric;
    }
    Column column = number_column(key.empty() ? "Score" : key.back(), alike ? look : std::nullopt);
    const bool metric_is_told = std::ranges::count(columns_, kMetric) > 0 || std::ranges::count(rows_, kMetric) > 0;
    if (alike && look && !metric_is_told) column.unit = with_unit(metric, *look);
    if (key.size() > 1) column.group = fmt::format("{}", fmt::join(key.begin(), key.end() - 1, ", "));
    return column;
  }

  /// Peers are rows of one class of bytes that agree in all dimensions but the method.
  int peers_of(const PlacedCell& cell, Key key) {
    if (cell.peers < 0) return -1;
    for (size_t at = 0; at < rows_.size(); ++at) {
      if (rows_[at] == kMethod) key[at].clear();
    }
    key.push_back(fmt::format("{}", cell.peers));
    return peers_.try_emplace(std::move(key), static_cast<int>(peers_.size())).first->second;
  }

  static void add_sides(TableRow& row, const PlacedCell& cell, const std::vector<MethodColumn>& of_methods) {
    const std::string key = method_key(cell.place.at("model"), cell.place.at(kMethod));
    for (const MethodColumn& side : of_methods) {
      const auto found = side.cells.find(key);
      row.cells.push_back(found == side.cells.end() ? TableCell{} : found->second);
    }
  }

  TableCell cell_at(const std::vector<const PlacedCell*>& in_row, const Key& column) {
    const auto found =
        std::ranges::find_if(in_row, [&](const PlacedCell* cell) { return key_of(*cell, columns_) == column; });
    return found == in_row.end() ? TableCell{} : in_this_table((*found)->cell);
  }

  /// Verdict on the mean over a method's workloads, where that is the mean of a row.
  TableCell said_of(const PlacedCell& cell, const std::map<std::string, TableCell>& means) {
    const bool over_workloads = columns_ == std::vector<std::string>{"workload"};
    const auto found = means.find(method_key(cell.place.at("model"), cell.place.at(kMethod)));
    const bool of_a_method = std::ranges::count(rows_, kMethod) > 0;
    if (!over_workloads || !of_a_method || found == means.end()) return {};
    return in_this_table(found->second);
  }

  TableCell in_this_table(TableCell cell) {
    for (size_t& note : cell.notes) note = footnote(table_, frame_.footnotes.at(note));
    keep_named(cell, shape_.cell);
    return cell;
  }

  static TableCell mean_of(const TableRow& row, size_t first, NumberFormat format, TableCell mean) {
    double total = 0;
    for (size_t at = first; at < row.cells.size(); ++at) {
      if (row.cells[at].kind != CellKind::number) return {};
      total += row.cells[at].value;
    }
    mean.kind = CellKind::number;
    mean.value = total / static_cast<double>(row.cells.size() - first);
    mean.format = format;
    return mean;
  }

  std::vector<const PlacedCell*> cells_;
  std::vector<std::string> rows_, columns_;
  const TableShape& shape_;
  const Table& frame_;
  Table table_;
  std::map<Key, int> peers_;
};

[[noreturn]] void fail_shape(const std::string& table_json) {
  fail({.place = "the experiment's table_json", .found = table_json, .expected = "the block \"table\" of a config"});
}

}  // namespace

bool TableShape::names(const std::string& dimension) const {
  return std::ranges::count(rows, dimension) > 0 || std::ranges::count(columns, dimension) > 0;
}

TableShape read_shape(const std::string& table_json) {
  TableShape shape;
  const json table = json::parse(table_json, nullptr, /*allow_exceptions=*/false);
  if (!table.is_object()) return shape;
  try {
    shape.rows = table.value("rows", shape.rows);
    shape.columns = table.value("columns", shape.columns);
    shape.cell = table.value("cell", shape.cell);
    shape.average = table.value("average", shape.average);
  } catch (const json::exception&) {
    fail_shape(table_json);
  }
  constexpr std::array kDimensions = {"experiment", "model", "workload", kMethod, kMetric};
  for (const auto* dimensions : {&shape.rows, &shape.columns}) {
    for (const std::string& dimension : *dimensions) {
      if (std::ranges::find(kDimensions, dimension) == kDimensions.end()) fail_shape(table_json);
    }
  }
  return shape;
}

std::string method_key(const std::string& model, const std::string& method) { return model + '\n' + method; }

std::vector<Table> shape_tables(const std::vector<PlacedCell>& cells, const TableShape& shape, const Table& frame,
                                const std::vector<MethodColumn>& of_methods,
                                const std::map<std::string, TableCell>& means) {
  if (cells.empty()) return {};
  std::vector<std::string> unnamed;
  for (const auto& [dimension, value] : cells.front().place) {
    if (!shape.names(dimension) && dimension != kMetric) unnamed.push_back(dimension);
  }
  std::map<Key, std::vector<const PlacedCell*>> parts;
  std::vector<const PlacedCell*> all;
  for (const PlacedCell& cell : cells) {
    parts[key_of(cell, unnamed)].push_back(&cell);
    all.push_back(&cell);
  }
  std::vector<Table> tables;
  for (const Key& key : keys_of(all, unnamed)) {
    Table table = Layout(parts.at(key), telling(cells, shape.rows), telling(cells, shape.columns), shape, frame)
                      .lay_out(of_methods, means);
    if (parts.size() > 1) {
      for (size_t at = 0; at < unnamed.size(); ++at) {
        const bool tells = std::ranges::any_of(parts, [&](const auto& part) { return part.first[at] != key[at]; });
        if (!tells) continue;
        table.id += fmt::format("-{}", slug(key[at]));
        table.title += fmt::format(", {}", key[at]);
      }
    }
    tables.push_back(std::move(table));
  }
  return tables;
}

}  // namespace kvarena::reports
