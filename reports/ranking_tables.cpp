#include "reports/ranking_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "metrics/stored_metrics.h"
#include "reports/chart_specs.h"
#include "reports/metric_look.h"
#include "reports/pooled.h"
#include "reports/sections.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

constexpr const char* kShare = metrics::kKeptBytesFraction.name;
constexpr const char* kDistance = metrics::kKlNats.name;
constexpr const char* kAgreement = metrics::kTop1Agreement.name;

Pool pooled(const ExperimentData& data, const std::string& label, const char* metric) {
  return pool_of(data, label, results::CellKind::quality, metric);
}

/// Share of resident bytes, marked where they were simulated or emulated.
TableCell share_cell(const ExperimentData& data, const Setting& setting, const MetricLook& bytes) {
  TableCell cell = pooled(data, setting.label, kShare).marks;
  cell.kind = CellKind::number;
  cell.value = bytes.scale * setting.share();
  return cell;
}

/// "3 – 7", whole ranks; empty without an interval.
std::string place_of(const std::vector<metrics::RankEstimate>& ranks, size_t method) {
  if (ranks.empty()) return "";
  const metrics::Interval& interval = ranks[method].interval;
  return fmt::format("{} – {}", std::floor(interval.low), std::ceil(interval.high));
}

/// The mean of a cell's metric that tables show.
TableCell score_of(const ExperimentData& data, const std::string& label, const std::string& workload) {
  const CellData* cell = data.find(label, workload, results::CellKind::quality);
  const std::string metric = primary_metric(data, workload);
  const std::vector<double> scores = cell == nullptr ? std::vector<double>() : finite(cell->numbers(metric));
  return scores.empty() ? TableCell{} : number_cell(look_of(data, metric).scale * metrics::mean_of(scores));
}

/// Distances, ranks and scores in each workload alone.
Table by_workload(const ExperimentData& data, const Chosen& chosen) {
  const std::string baseline = data.baseline();
  Table table{.id = "ranking-workloads",
              .title = "By workload",
              .caption =
                  "KL from full KV, the rank of 95 in 100 draws of the workload's samples, where there are six, "
                  "and the score that they are judged by.",
              .columns = {{.title = "Method", .numeric = false}},
              .rows = {{.cells = {text_cell(baseline)}, .role = RowRole::baseline}}};
  for (const Setting* setting : chosen.ranked) table.rows.push_back({.cells = {text_cell(setting->method)}});
  for (const std::string& workload : data.workloads()) {
    const std::vector<metrics::RankEstimate> ranks = ranks_of(chosen.ranked, workload);
    const std::string metric = primary_metric(data, workload);
    const MetricLook score = look_of(data, metric);
    table.columns.push_back({.title = "KL a step",
                             .unit = look_of(data, kDistance).unit,
                             .group = workload,
                             .better = Better::lower,
                             .format = {.style = NumberStyle::significant, .digits = 3}});
    table.columns.push_back({.title = "Rank", .group = workload, .numeric = false});
    table.columns.push_back(
        {.title = metric, .unit = score.unit, .group = workload, .better = score.better, .format = score.format});
    std::vector<TableCell>& first = table.rows.front().cells;
    first.insert(first.end(), {TableCell{}, TableCell{}, score_of(data, baseline, workload)});
    for (size_t i = 0; i < chosen.ranked.size(); ++i) {
      std::vector<TableCell>& cells = table.rows[i + 1].cells;
      cells.push_back(number_cell(metrics::mean_of(chosen.ranked[i]->distances(workload))));
      cells.push_back(text_cell(place_of(ranks, i)));
      cells.push_back(score_of(data, chosen.ranked[i]->label, workload));
    }
  }
  return table;
}

}  // namespace

std::string percent_of(double share) { return fmt::format("{:.4g}%", 100 * share); }

Section ranking_section(const ExperimentData& data, const Chosen& chosen, double share) {
  const MetricLook bytes = look_of(data, kShare), distance = look_of(data, kDistance),
                   agreement = look_of(data, kAgreement);
  const NumberFormat digits{.style = NumberStyle::significant, .digits = 3};
  Table table{
      .id = "ranking",
      .title = fmt::format("At most {} of full KV's bytes", percent_of(share)),
      .caption =
          "Resident bytes are measured after the prompt, means over all samples: entries, scales, positions, "
          "indexes, and what lies on the device of a cache behind it; layers with a window, which methods leave "
          "alone, are left out on both sides. KL from full KV is teacher-forced on its continuation. Samples are "
          "those that all methods have; questions about one context count as one. Rank of 95 in 100 draws of them, "
          "where each workload has six: methods whose ranks overlap are in no order.",
      .columns = {{.title = "Rank"},
                  {.title = "of 95 in 100 draws", .numeric = false},
                  {.title = "Method", .numeric = false},
                  {.title = "Setting", .numeric = false},
                  {.title = "Resident", .unit = bytes.unit, .format = bytes.format},
                  {.title = "KL a step", .unit = distance.unit, .better = Better::lower, .format = digits},
                  {.title = "Same next token",
                   .unit = agreement.unit,
                   .better = agreement.better,
                   .format = agreement.format}}};
  std::vector<BarValue> bars;
  const std::vector<metrics::RankEstimate> ranks = ranks_of(chosen.ranked, "");
  for (size_t i = 0; i < chosen.ranked.size(); ++i) {
    const Setting& setting = *chosen.ranked[i];
    TableRow row{.cells = {number_cell(static_cast<double>(i) + 1), text_cell(place_of(ranks, i)),
                           text_cell(setting.method), text_cell(setting.label), share_cell(data, setting, bytes),
                           mean_of_pool(pooled(data, setting.label, kDistance), distance),
                           mean_of_pool(pooled(data, setting.label, kAgreement), agreement)}};
    if (ranks.empty()) {
      for (TableCell& cell : row.cells) cell.interval.reset();
    }
    row.cells[0].format = NumberFormat{.style = NumberStyle::fixed, .digits = 0};
    bars.push_back({.category = setting.method, .value = row.cells[5].value, .interval = row.cells[5].interval});
    table.rows.push_back(std::move(row));
  }
  mark_best(table);
  Chart chart =
      bar_chart("ranking-kl", "KL from full KV at equal bytes", {.title = "KL a step, nats", .log = true}, bars);
  chart.caption = "To the left is better; intervals are over samples.";
  return {.id = "ranking",
          .title = "Ranking",
          .tables = {std::move(table), by_workload(data, chosen)},
          .charts = {std::move(chart)}};
}

std::optional<Section> beyond_section(const ExperimentData& data, const std::vector<Setting>& settings,
                                      const Chosen& chosen) {
  const MetricLook bytes = look_of(data, kShare), distance = look_of(data, kDistance);
  Table table{
      .id = "beyond",
      .title = "Not within the budget",
      .caption =
          "Of each method the setting with the fewest bytes. Methods that select keep every entry; what "
          "they attend to is as little as what others keep.",
      .columns = {
          {.title = "Method", .numeric = false},
          {.title = "Setting", .numeric = false},
          {.title = "Resident", .unit = bytes.unit, .format = bytes.format},
          {.title = "KL a step", .unit = distance.unit, .format = {.style = NumberStyle::significant, .digits = 3}}}};
  for (const Setting* setting : chosen.beyond) {
    table.rows.push_back(
        {.cells = {text_cell(setting->method), text_cell(setting->label), share_cell(data, *setting, bytes),
                   mean_of_pool(pooled(data, setting->label, kDistance), distance)}});
  }
  std::set<std::string> numbered;
  for (const auto* list : {&chosen.ranked, &chosen.beyond}) {
    for (const Setting* setting : *list) numbered.insert(setting->method);
  }
  for (const Setting& setting : settings) {
    if (setting.complete() || numbered.contains(setting.method)) continue;
    table.rows.push_back(
        {.cells = {text_cell(setting.method), text_cell(setting.label), failed_cell(setting.failure), TableCell{}}});
  }
  if (table.rows.empty()) return std::nullopt;
  return Section{.id = "beyond", .title = "Beyond the budget", .tables = {std::move(table)}};
}

Section overview_section(std::span<const OverviewColumn> columns) {
  std::map<std::string, std::vector<double>> places;  // of a method, as shares of what it is ranked with
  for (const OverviewColumn& column : columns) {
    const double count = static_cast<double>(column.ranked->size());
    for (size_t i = 0; i < column.ranked->size(); ++i)
      places[(*column.ranked)[i]->method].push_back((static_cast<double>(i) + 0.5) / count);
  }
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [method, own] : places) order.emplace_back(metrics::mean_of(own), method);
  std::ranges::sort(order);
  Table table{.id = "overview",
              .title = "KL from full KV in every ranking",
              .caption =
                  "Nats a step, means over all samples; methods by their mean place in the rankings that have "
                  "them. What has no number holds more or less than the budget.",
              .columns = {{.title = "Method", .numeric = false}}};
  for (const auto& [place, method] : order) table.rows.push_back({.cells = {text_cell(method)}});
  for (const OverviewColumn& column : columns) {
    table.columns.push_back({.title = column.title,
                             .group = column.group,
                             .better = Better::lower,
                             .format = {.style = NumberStyle::significant, .digits = 2}});
    for (size_t i = 0; i < order.size(); ++i) {
      const auto found = std::ranges::find(*column.ranked, order[i].second, &Setting::method);
      table.rows[i].cells.push_back(found == column.ranked->end() ? TableCell{} : number_cell((*found)->distance()));
    }
  }
  return {.id = "overview", .title = "Overview", .tables = {std::move(table)}};
}

}  // namespace kvarena::reports
