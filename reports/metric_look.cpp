#include "reports/metric_look.h"

#include <array>
#include <cmath>
#include <numbers>

namespace kvarena::reports {
namespace {

constexpr double kKibi = 1024;

/// A unit, what it measures, how many of it make one base unit of that, and where it begins to count.
struct Unit {
  const char* name;
  const char* measures;
  double per_base;
  double zero = 0;
};

constexpr std::array kUnits = {Unit{"fraction", "share", 1},
                               Unit{"percent", "share", 100},
                               Unit{"%", "share", 100},
                               Unit{"×", "share", 1},
                               Unit{"marks from 1 to 5", "share", 4, 1},
                               Unit{"s", "time", 1},
                               Unit{"seconds", "time", 1},
                               Unit{"ms", "time", 1e3},
                               Unit{"milliseconds", "time", 1e3},
                               Unit{"us", "time", 1e6},
                               Unit{"bytes", "size", 1},
                               Unit{"B", "size", 1},
                               Unit{"KiB", "size", 1 / kKibi},
                               Unit{"MiB", "size", 1 / (kKibi * kKibi)},
                               Unit{"GiB", "size", 1 / (kKibi * kKibi * kKibi)},
                               Unit{"KB", "size", 1e-3},
                               Unit{"MB", "size", 1e-6},
                               Unit{"GB", "size", 1e-9},
                               Unit{"nats", "information", 1},
                               Unit{"bits", "information", std::numbers::log2e},
                               Unit{"tokens/s", "rate", 1},
                               Unit{"tokens per second", "rate", 1},
                               Unit{"tok/s", "rate", 1}};

const Unit* known_unit(const std::string& name) {
  for (const Unit& unit : kUnits) {
    if (name == unit.name) return &unit;
  }
  return nullptr;
}

Better better_of(results::Direction direction) {
  switch (direction) {
    case results::Direction::higher: return Better::higher;
    case results::Direction::lower: return Better::lower;
    case results::Direction::neither: break;
  }
  return Better::neither;
}

std::string stored_unit(const ExperimentData& data, const std::string& metric) {
  for (const CellData& cell : data.cells) {
    const auto values = cell.values->find(metric);
    if (values != cell.values->end()) return values->second.unit;
  }
  return {};
}

NumberFormat format_of(const std::string& unit, double scale) {
  if (unit == "bytes") return {.style = NumberStyle::bytes, .digits = 1};
  if (unit == "fraction") return {.style = NumberStyle::fixed, .digits = scale >= 100 ? 1 : scale >= 10 ? 2 : 3};
  if (unit == "ms") return {.style = NumberStyle::fixed, .digits = 1};
  return {.style = NumberStyle::significant, .digits = 4};
}

}  // namespace

MetricLook look_of(const ExperimentData& data, const std::string& metric) {
  const auto found = data.definitions.find(metric);
  if (found == data.definitions.end()) {
    const std::string unit = stored_unit(data, metric);
    return {.title = metric, .unit = unit, .format = format_of(unit, 1)};
  }
  const results::MetricDefinition& metric_is = found->second;
  MetricLook look{.title = metric_is.title,
                  .unit = metric_is.unit,
                  .scale = metric_is.table_scale,
                  .better = better_of(metric_is.better),
                  .format = format_of(metric_is.unit, metric_is.table_scale)};
  if (look.unit == "fraction") look.unit = look.scale == 100 ? "%" : "";
  if (look.unit == "bytes") look.unit.clear();  // the number's format writes it
  return look;
}

std::vector<MetricLook> add_metric_columns(const ExperimentData& data, std::span<const MetricColumn> columns,
                                           Table& table) {
  std::vector<MetricLook> looks;
  for (const MetricColumn& column : columns) {
    looks.push_back(look_of(data, column.metric.name));
    table.columns.push_back({.title = column.title != nullptr ? column.title : column.metric.title,
                             .unit = looks.back().unit,
                             .group = column.group,
                             .better = looks.back().better,
                             .format = column.format.value_or(looks.back().format)});
  }
  return looks;
}

std::string primary_metric(const ExperimentData& data, const std::string& workload) {
  for (const CellData& cell : data.cells) {
    if (cell.row.cell.workload != workload) continue;
    for (const auto& [key, value] : cell.card) {
      if (key == "metrics") return value.substr(0, value.find(' '));
    }
  }
  return {};
}

std::optional<UnitChange> unit_change(const std::string& stored, const std::string& unit) {
  if (stored == unit) return UnitChange{};
  const Unit* from = known_unit(stored);
  const Unit* to = known_unit(unit);
  if (from == nullptr || to == nullptr || std::string_view(from->measures) != to->measures) return std::nullopt;
  const double factor = to->per_base / from->per_base;
  return UnitChange{.factor = factor, .shift = to->zero - factor * from->zero};
}

}  // namespace kvarena::reports
