// Distance and bytes by generated length, where a method evicts while decoding: what holds for the first tokens need
// not hold for the last.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "metrics/stored_metrics.h"
#include "reports/escape.h"
#include "reports/sections.h"

namespace kvarena::reports {
namespace {

constexpr size_t kShortest = 32;  // steps of the first range; each further one is as long as all before it

/// A series by sample; empty for cells without it.
std::map<std::string, std::vector<float>> by_sample(const CellData* cell, const std::string& name) {
  std::map<std::string, std::vector<float>> samples;
  if (cell == nullptr || !cell->counts() || !cell->series.contains(name)) return samples;
  for (const results::SeriesRow& row : cell->series.at(name)) samples[row.sample_id] = row.series.values;
  return samples;
}

bool shrinks(const CellData& cell) {
  return std::ranges::any_of(by_sample(&cell, metrics::kDeviceBytes.name),
                             [](const auto& one) { return !std::ranges::is_sorted(one.second); });
}

/// Mean over the samples that reach `end` of their means over steps begin .. end-1.
TableCell mean_over(const std::map<std::string, std::vector<float>>& samples, size_t begin, size_t end) {
  double sum = 0;
  int64_t count = 0;
  for (const auto& [sample, values] : samples) {
    if (values.size() < end) continue;
    double own = 0;
    for (size_t i = begin; i < end; ++i) own += values[i];
    sum += own / static_cast<double>(end - begin);
    ++count;
  }
  if (count == 0) return {};
  TableCell cell = number_cell(sum / static_cast<double>(count));
  cell.samples = count;
  return cell;
}

/// Bytes at `step` in percent of the baseline's, mean over the samples of which both get there.
TableCell share_at(const std::map<std::string, std::vector<float>>& samples,
                   const std::map<std::string, std::vector<float>>& full, size_t step) {
  double sum = 0;
  int64_t count = 0;
  for (const auto& [sample, values] : samples) {
    const auto base = full.find(sample);
    if (base == full.end() || values.size() <= step || base->second.size() <= step) continue;
    sum += 100.0 * values[step] / base->second[step];
    ++count;
  }
  if (count == 0) return {};
  TableCell cell = number_cell(sum / static_cast<double>(count));
  cell.samples = count;
  return cell;
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
  std::vector<size_t> ends;
  for (size_t end = kShortest; end <= longest; end *= 2) ends.push_back(end);
  for (const size_t end : ends) {
    table.columns.push_back({.title = fmt::format("{} – {}", end == kShortest ? 1 : end / 2 + 1, end),
                             .unit = "nats",
                             .group = "KL at steps",
                             .better = Better::lower,
                             .format = {.style = NumberStyle::significant, .digits = 2}});
  }
  for (const size_t end : ends) {
    table.columns.push_back({.title = fmt::format("{}", end), .unit = "%", .group = "Bytes at step"});
  }
  const auto full =
      by_sample(data.find(data.baseline(), workload, results::CellKind::quality), metrics::kDeviceBytes.name);
  for (const std::string& method : data.methods()) {
    const CellData* cell = data.find(method, workload, results::CellKind::quality);
    const auto distance = by_sample(cell, metrics::kKlNats.name);
    const auto bytes = by_sample(cell, metrics::kDeviceBytes.name);
    if (distance.empty()) continue;
    TableRow row{.cells = {text_cell(method)},
                 .role = method == data.baseline() ? RowRole::baseline : RowRole::ordinary};
    for (const size_t end : ends) row.cells.push_back(mean_over(distance, end == kShortest ? 0 : end / 2, end));
    for (const size_t end : ends) row.cells.push_back(share_at(bytes, full, end - 1));
    table.rows.push_back(std::move(row));
  }
  mark_best(table);
  return table;
}

}  // namespace

std::optional<Section> length_section(const ExperimentData& data) {
  Section section{.id = "length", .title = "By generated length"};
  for (const std::string& workload : data.workloads()) {
    size_t longest = 0;
    bool evicts = false;
    for (const std::string& method : data.methods()) {
      const CellData* cell = data.find(method, workload, results::CellKind::quality);
      if (cell == nullptr || !cell->counts()) continue;
      evicts = evicts || shrinks(*cell);
      for (const auto& [sample, values] : by_sample(cell, metrics::kKlNats.name)) {
        longest = std::max(longest, values.size());
      }
    }
    if (evicts && longest >= 2 * kShortest) section.tables.push_back(length_table(data, workload, longest));
  }
  if (section.tables.empty()) return std::nullopt;
  return section;
}

}  // namespace kvarena::reports
