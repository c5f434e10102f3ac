// Distance and bytes by generated length, where a method evicts while decoding, and log-probability by position, where
// texts are scored: what holds for the first tokens need not hold for the last.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

#include "metrics/stored_metrics.h"
#include "reports/escape.h"
#include "reports/sections.h"

namespace kvarena::reports {
namespace {

constexpr size_t kShortest = 32;  // steps of the first range; each further one is as long as all before it

/// The rows of a series; none for cells without it.
std::span<const results::SeriesRow> rows_of(const CellData* cell, const std::string& name) {
  if (cell == nullptr || !cell->counts() || !cell->series->contains(name)) return {};
  return cell->series->at(name);
}

/// Values of a series by sample.
using BySample = std::map<std::string_view, std::span<const float>>;

bool shrinks(const CellData* cell) {
  return std::ranges::any_of(rows_of(cell, metrics::kDeviceBytes.name),
                             [](const results::SeriesRow& row) { return !std::ranges::is_sorted(row.series.values); });
}

TableCell mean_cell(const std::vector<double>& values) {
  if (values.empty()) return {};
  TableCell cell = number_cell(metrics::mean_of(values));
  cell.samples = std::ssize(values);
  return cell;
}

/// Mean over the samples that reach `end` of their means over steps begin .. end-1.
TableCell mean_over(std::span<const results::SeriesRow> rows, size_t begin, size_t end) {
  std::vector<double> means;
  for (const results::SeriesRow& row : rows) {
    const std::vector<float>& values = row.series.values;
    if (values.size() >= end)
      means.push_back(metrics::mean_of(std::vector<double>(&values[begin], &values[begin] + (end - begin))));
  }
  return mean_cell(means);
}

/// Bytes at `step` in percent of the baseline's, mean over the samples of which both get there.
TableCell share_at(std::span<const results::SeriesRow> rows, const BySample& full, size_t step) {
  std::vector<double> shares;
  for (const results::SeriesRow& row : rows) {
    const auto base = full.find(row.sample_id);
    if (base == full.end() || row.series.values.size() <= step || base->second.size() <= step) continue;
    shares.push_back(100.0 * row.series.values[step] / base->second[step]);
  }
  return mean_cell(shares);
}

/// Where ranges of steps end, each as long as all before it.
std::vector<size_t> range_ends(size_t longest) {
  std::vector<size_t> ends;
  for (size_t end = kShortest; end <= longest; end *= 2) ends.push_back(end);
  return ends;
}

void add_columns(Table& table, const std::vector<size_t>& ends, const char* group, int digits) {
  for (const size_t end : ends) {
    table.columns.push_back({.title = fmt::format("{} – {}", end == kShortest ? 1 : end / 2 + 1, end),
                             .unit = "nats",
                             .group = group,
                             .better = Better::lower,
                             .format = {.style = NumberStyle::significant, .digits = digits}});
  }
}

/// A row of the method whose cells are means of its series over each range.
TableRow range_row(const ExperimentData& data, const std::string& method, std::span<const results::SeriesRow> series,
                   const std::vector<size_t>& ends) {
  TableRow row{.cells = {text_cell(method)}, .role = method == data.baseline() ? RowRole::baseline : RowRole::ordinary};
  for (const size_t end : ends) row.cells.push_back(mean_over(series, end == kShortest ? 0 : end / 2, end));
  return row;
}

Table length_table(const ExperimentData& data, const std::string& workload, size_t longest) {
  Table table{.id = fmt::format("length-{}", slug(workload)),
              .title = fmt::format("By generated length, {}", workload),
              .caption =
                  "KL a step, mean over these steps of the full-KV continuation and over the samples that reach "
                  "the last of them; cache bytes at this step of the method's own answer, of full KV's there. "
                  "In brackets: samples.",
              .columns = {{.title = "Method", .numeric = false}},
              .cell = "{mean} [{n}]"};
  const std::vector<size_t> ends = range_ends(longest);
  add_columns(table, ends, "KL at steps", 2);
  for (const size_t end : ends) {
    table.columns.push_back({.title = fmt::format("{}", end), .unit = "%", .group = "Bytes at step"});
  }
  BySample full;
  const CellData* baseline = data.find(data.baseline(), workload, results::CellKind::quality);
  for (const results::SeriesRow& row : rows_of(baseline, metrics::kDeviceBytes.name)) {
    full.emplace(row.sample_id, row.series.values);
  }
  for (const std::string& method : data.methods()) {
    const CellData* cell = data.find(method, workload, results::CellKind::quality);
    const auto distance = rows_of(cell, metrics::kKlNats.name);
    const auto bytes = rows_of(cell, metrics::kDeviceBytes.name);
    if (distance.empty()) continue;
    TableRow row = range_row(data, method, distance, ends);
    for (const size_t end : ends) row.cells.push_back(share_at(bytes, full, end - 1));
    table.rows.push_back(std::move(row));
  }
  mark_best(table);
  return table;
}

Table position_table(const ExperimentData& data, const std::string& workload, size_t longest) {
  Table table{.id = fmt::format("position-{}", slug(workload)),
              .title = fmt::format("Negative log-probability by position, {}", workload),
              .caption =
                  "Nats a token, mean over these scored tokens and over the samples that reach the last of them; "
                  "the first one follows what was compressed. In brackets: samples.",
              .columns = {{.title = "Method", .numeric = false}},
              .cell = "{mean} [{n}]"};
  const std::vector<size_t> ends = range_ends(longest);
  add_columns(table, ends, "Scored tokens", 4);
  for (const std::string& method : data.methods()) {
    const auto scored = rows_of(data.find(method, workload, results::CellKind::quality), metrics::kNllNats.name);
    if (!scored.empty()) table.rows.push_back(range_row(data, method, scored, ends));
  }
  mark_best(table);
  return table;
}

/// Values of a workload's longest series of that name.
size_t longest_of(const ExperimentData& data, const std::string& workload, const std::string& name) {
  size_t longest = 0;
  for (const std::string& method : data.methods()) {
    for (const results::SeriesRow& row : rows_of(data.find(method, workload, results::CellKind::quality), name))
      longest = std::max(longest, row.series.values.size());
  }
  return longest;
}

}  // namespace

std::optional<Section> length_section(const ExperimentData& data) {
  Section section{.id = "length", .title = "By length"};
  for (const std::string& workload : data.workloads()) {
    const bool evicts = std::ranges::any_of(data.methods(), [&](const std::string& method) {
      return shrinks(data.find(method, workload, results::CellKind::quality));
    });
    const size_t longest = longest_of(data, workload, metrics::kKlNats.name);
    if (evicts && longest >= 2 * kShortest) section.tables.push_back(length_table(data, workload, longest));
    const size_t scored = longest_of(data, workload, metrics::kNllNats.name);
    if (scored >= 2 * kShortest) section.tables.push_back(position_table(data, workload, scored));
  }
  if (section.tables.empty()) return std::nullopt;
  return section;
}

}  // namespace kvarena::reports
