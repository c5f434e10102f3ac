#include "reports/grouped_rows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace kvarena::reports {
namespace {

using results::ValueRow;

/// The column with a row for each group of its rows, named `name(row)`, whose value `of` makes of them.
template <class Name, class Of>
results::ValueColumn grouped(const results::ValueColumn& column, const Name& name, const Of& of) {
  std::map<std::string, std::vector<ValueRow>> groups;
  for (const ValueRow& row : column.rows) groups[name(row)].push_back(row);
  results::ValueColumn whole = column;
  whole.rows.clear();
  for (const auto& [id, rows] : groups) {
    whole.rows.push_back({.sample_id = id,
                          .sample_index = rows.front().sample_index,
                          .value = of(rows),
                          .active = std::ranges::any_of(rows, &ValueRow::active)});
  }
  std::ranges::sort(whole.rows, {}, &ValueRow::sample_index);
  return whole;
}

/// The column with a row for each sample, under the name of its first draw.
template <class Of>
results::ValueColumn by_sample(const results::ValueColumn& column, int64_t draws, const Of& of) {
  const auto first_draw = [](const ValueRow& row) { return row.sample_id.substr(0, row.sample_id.rfind('#')) + "#1"; };
  results::ValueColumn whole = grouped(column, first_draw, of);
  for (ValueRow& row : whole.rows) row.sample_index /= draws;
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
  if (const auto scores = cell.values->find(score); scores != cell.values->end()) {
    results::ValueColumn passed = by_sample(scores->second, draws, some_right);
    passed.metric = kPassAtK.name;
    cell.values.own().emplace(kPassAtK.name, std::move(passed));
  }
  for (auto& [metric, column] : cell.values.own()) {
    if (metric != kPassAtK.name) column = by_sample(column, draws, mean);
  }
  cell.prompt_lengths = by_sample(*cell.prompt_lengths, draws, mean);
  for (int64_t* const samples : {&cell.row.done_samples, &cell.row.cell.planned_samples})
    *samples = (*samples + draws - 1) / draws;
}

void average_contexts(CellData& cell, const std::map<std::string, std::string>& contexts) {
  if (contexts.empty()) return;
  std::map<std::string, std::string> asked;  // ids of the samples of each context
  for (const auto& [sample, context] : contexts) asked[context] += sample + ", ";
  const auto context_of = [&](const ValueRow& row) {
    const auto found = contexts.find(row.sample_id);
    return found == contexts.end() ? row.sample_id : asked.at(found->second);
  };
  for (auto& [metric, column] : cell.values.own()) column = grouped(column, context_of, mean);
  cell.prompt_lengths = grouped(*cell.prompt_lengths, context_of, mean);
  cell.contexts = std::ssize(cell.prompt_lengths->rows);
}

}  // namespace kvarena::reports
