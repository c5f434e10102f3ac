#include "reports/draws.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace kvarena::reports {
namespace {

using results::ValueRow;

/// Rows of each sample, draw by draw, under the name of its first.
std::map<std::string, std::vector<ValueRow>> rows_by_sample(const results::ValueColumn& column) {
  std::map<std::string, std::vector<ValueRow>> samples;
  for (const ValueRow& row : column.rows)
    samples[row.sample_id.substr(0, row.sample_id.rfind('#')) + "#1"].push_back(row);
  return samples;
}

/// The column with a row for each sample, whose value `of` makes of its draws.
template <class Of>
results::ValueColumn by_sample(const results::ValueColumn& column, int64_t draws, const Of& of) {
  results::ValueColumn whole = column;
  whole.rows.clear();
  for (const auto& [id, rows] : rows_by_sample(column)) {
    whole.rows.push_back({.sample_id = id,
                          .sample_index = rows.front().sample_index / draws,
                          .value = of(rows),
                          .active = std::ranges::any_of(rows, &ValueRow::active)});
  }
  std::ranges::sort(whole.rows, {}, &ValueRow::sample_index);
  return whole;
}

/// The mean of those that are defined, NaN of none.
double mean(const std::vector<ValueRow>& rows) {
  double sum = 0;
  int64_t defined = 0;
  for (const ValueRow& row : rows) {
    if (std::isnan(row.value)) continue;
    sum += row.value;
    ++defined;
  }
  return sum / static_cast<double>(defined);
}

double some_right(const std::vector<ValueRow>& rows) {
  return std::ranges::any_of(rows, [](const ValueRow& row) { return row.value >= 1; }) ? 1 : 0;
}

}  // namespace

void average_draws(CellData& cell, const std::string& score) {
  const auto told = std::ranges::find(cell.card, "draws", &std::pair<std::string, std::string>::first);
  if (told == cell.card.end()) return;
  const int64_t draws = std::stoll(told->second);
  if (const auto scores = cell.values.find(score); scores != cell.values.end()) {
    results::ValueColumn passed = by_sample(scores->second, draws, some_right);
    passed.metric = kPassAtK.name;
    cell.values.emplace(kPassAtK.name, std::move(passed));
  }
  for (auto& [metric, column] : cell.values) {
    if (metric != kPassAtK.name) column = by_sample(column, draws, mean);
  }
  cell.prompt_lengths = by_sample(cell.prompt_lengths, draws, mean);
  for (int64_t* const samples : {&cell.row.done_samples, &cell.row.cell.planned_samples})
    *samples = (*samples + draws - 1) / draws;
}

}  // namespace kvarena::reports
