#pragma once
// The shape that a config gives its table: which dimension makes rows and which columns, what a cell shows.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reports/metric_look.h"
#include "reports/table.h"

namespace kvarena::reports {

/// The block "table" of a config. Dimensions: experiment, model, workload, method, metric.
struct TableShape {
  std::vector<std::string> rows = {"model", "method"};
  std::vector<std::string> columns = {"workload"};
  std::string cell = kUsualCell;
  bool average = false;

  /// Whether a dimension makes rows or columns.
  [[nodiscard]] bool names(const std::string& dimension) const;
};

/// From the JSON that the results database holds; members that it lacks keep their defaults. Throws UserError for what
/// no config could have said.
[[nodiscard]] TableShape read_shape(const std::string& table_json);

/// A number with its place among the dimensions.
struct PlacedCell {
  std::map<std::string, std::string> place;  // a value of each dimension
  TableCell cell;                            // its notes are of the frame that shape_tables() is given
  MetricLook look;
  RowRole role = RowRole::ordinary;
  std::optional<Badge> badge;
  int peers = -1;  // methods of one number may be compared for the best; of a negative one, none
};

/// A column that says something of the methods themselves, beside their scores.
struct MethodColumn {
  Column column;
  std::map<std::string, TableCell> cells;  // by model and method: method_key()
};

[[nodiscard]] std::string method_key(const std::string& model, const std::string& method);

/// Lays cells out in tables with the frame's id, title and caption. Dimensions with one value are left out where others
/// remain; one that neither rows nor columns name divides the cells into tables of their own, but for `metric`, which
/// then follows the workload. Rows and columns come in the order of their first cell. With `average` a last column
/// holds the mean of the others, in rows whose numbers are all there and read alike; where its columns are the
/// workloads, it says of a method what `means` (by method_key()) says beside the value. Method columns stand behind
/// the numbers, where methods make rows.
[[nodiscard]] std::vector<Table> shape_tables(const std::vector<PlacedCell>& cells, const TableShape& shape,
                                              const Table& frame, const std::vector<MethodColumn>& of_methods,
                                              const std::map<std::string, TableCell>& means);

}  // namespace kvarena::reports
