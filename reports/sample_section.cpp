// Samples one by one: what each loses, which method loses least on it, which setting is worth its bytes (Feng et al.
// 2025, arXiv:2512.14946, Figures 3 to 5). For experiments that measure similarity to full KV's answers.

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "reports/best_samples.h"
#include "reports/byte_classes.h"
#include "reports/chart_specs.h"
#include "reports/metric_look.h"
#include "reports/sections.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

constexpr const char* kMetric = "embedding_similarity";
constexpr NumberFormat kPercent{.style = NumberStyle::fixed, .digits = 1};
constexpr NumberFormat kRatio{.style = NumberStyle::fixed, .digits = 2};

const CellData* cell_of(const ExperimentData& data, const std::string& method, const std::string& workload) {
  const CellData* cell = data.find(method, workload, results::CellKind::quality);
  return cell != nullptr && cell->counts() && cell->values->contains(kMetric) ? cell : nullptr;
}

std::vector<std::string> compressing(const ExperimentData& data) {
  std::vector<std::string> methods = data.methods();
  std::erase(methods, data.baseline());
  return methods;
}

/// Standard deviation over mean, of the size of the mean; nothing where that is 0.
TableCell variation_cell(const std::vector<double>& values) {
  const double variation = variation_of(values);
  return std::isfinite(variation) ? number_cell(variation) : TableCell{};
}

/// Figure 3: spread of the share of the baseline's similarity that samples lose.
void add_drops(const ExperimentData& data, Section& section) {
  Table table{.id = "sample-drops",
              .title = "What single samples lose",
              .caption = fmt::format("Drop: 1 - similarity over that of {} on the same sample. Variation: standard "
                                     "deviation over mean.",
                                     data.baseline()),
              .columns = {{.title = "Method", .numeric = false},
                          {.title = "Workload", .numeric = false},
                          {.title = "Samples", .format = {.style = NumberStyle::fixed, .digits = 0}},
                          {.title = "25th percentile", .unit = "%", .group = "Drop", .format = kPercent},
                          {.title = "median", .unit = "%", .group = "Drop", .format = kPercent},
                          {.title = "75th percentile", .unit = "%", .group = "Drop", .format = kPercent},
                          {.title = "Variation", .format = kRatio}}};
  std::map<std::string, std::vector<LineSeries>> lines;  // by method
  for (const std::string& method : compressing(data)) {
    for (const std::string& workload : data.workloads()) {
      const CellData* cell = cell_of(data, method, workload);
      const CellData* base = cell_of(data, data.baseline(), workload);
      if (cell == nullptr || base == nullptr) continue;
      std::vector<double> drops = sample_drops(*cell, *base, kMetric);
      if (drops.empty()) continue;
      for (double& drop : drops) drop *= 100;
      TableRow row{.cells = {text_cell(method), text_cell(workload), number_cell(static_cast<double>(drops.size()))}};
      for (const double p : {25, 50, 75}) row.cells.push_back(number_cell(metrics::percentile(drops, p)));
      row.cells.push_back(variation_cell(drops));
      table.rows.push_back(std::move(row));
      if (drops.size() > 1) lines[method].push_back({.label = workload, .points = cumulative_points(std::move(drops))});
    }
  }
  if (table.rows.empty()) return;
  section.tables.push_back(std::move(table));
  for (const auto& [method, series] : lines) {
    section.charts.push_back(line_chart(
        fmt::format("sample-drops-{}", section.charts.size() + 1), fmt::format("What single samples lose, {}", method),
        {.title = "drop of similarity, %"}, {.title = "% of samples that lose no more", .zero = true}, series));
    section.charts.back().caption = "Measured, each sample against the baseline's answer to it.";
  }
}

/// Figure 4: of methods that keep about as many bytes, the samples that each is best for.
void add_best_methods(const ExperimentData& data, Section& section) {
  Table table{
      .id = "best-methods",
      .title = "The method that loses least, sample by sample",
      .caption =
          "Of methods with about as many resident bytes (within a seventh). A sample on which several "
          "lose least counts for each with its part, and for no length.",
      .columns = {
          {.title = "Bytes", .numeric = false},
          {.title = "Method", .numeric = false},
          {.title = "Best for", .unit = "%", .format = kPercent},
          {.title = "median prompt of these", .unit = "tokens", .format = {.style = NumberStyle::fixed, .digits = 0}}}};
  std::map<int, std::vector<std::string>> groups;
  for (const auto& [method, number] : byte_classes(data)) groups[number].push_back(method);
  const std::map<std::string, double> shares = byte_shares(data);
  for (const auto& [number, methods] : groups) {
    if (methods.size() < 2) continue;
    BestFor best = best_for(data, methods, kMetric);
    if (best.samples == 0) continue;
    std::vector<LineSeries> lines;
    for (const std::string& method : methods) {
      const std::vector<double>& lengths = best.lengths[method];
      TableRow row{.cells = {text_cell(fmt::format("{:.0f}%", 100 * shares.at(method))),
                             text_cell(method),
                             number_cell(100 * best.counts[method] / best.samples),
                             {}}};
      row.cells[2].detail = fmt::format("{:.0f} samples", best.samples);
      if (!lengths.empty()) row.cells[3] = number_cell(metrics::percentile(lengths, 50));
      table.rows.push_back(std::move(row));
      if (lengths.size() > 1) lines.push_back({.label = method, .points = cumulative_points(lengths)});
    }
    if (lines.empty()) continue;
    section.charts.push_back(line_chart(
        fmt::format("best-lengths-{}", number + 1),
        fmt::format("Lengths of the prompts that a method is best for, {:.0f}% kept", 100 * shares.at(methods.front())),
        {.title = "prompt tokens"}, {.title = "% of them that are no longer", .zero = true}, lines));
    section.charts.back().caption = "Lines that lie on each other: a prompt's length does not tell its best method.";
  }
  if (!table.rows.empty()) section.tables.push_back(std::move(table));
}

/// Figure 5: the share kept that is best for each sample, quality against bytes.
void add_best_shares(const ExperimentData& data, Section& section) {
  std::set<int> classes;
  for (const auto& [method, number] : byte_classes(data)) classes.insert(number);
  if (classes.size() < 2) return;
  Table table{.id = "best-shares",
              .title = "The share kept that is best, sample by sample",
              .caption =
                  "Best: the largest difference of similarity, over full KV's, and resident bytes, over full "
                  "KV's, of all methods and full KV. Bytes stand for the time to the first token of a stored "
                  "cache, which grows with what is loaded. Variation: standard deviation over mean.",
              .columns = {{.title = "Workload", .numeric = false},
                          {.title = "Samples", .format = {.style = NumberStyle::fixed, .digits = 0}},
                          {.title = "mean", .unit = "%", .group = "Best share kept", .format = kPercent},
                          {.title = "deviation", .unit = "%", .group = "Best share kept", .format = kPercent},
                          {.title = "Variation", .format = kRatio}}};
  std::vector<BarValue> bars;
  for (const std::string& workload : data.workloads()) {
    std::vector<double> best = best_shares(data, workload, kMetric);
    if (best.size() < 2) continue;
    for (double& share : best) share *= 100;
    const double mean = metrics::mean_of(best), deviation = metrics::standard_deviation_of(best);
    table.rows.push_back({.cells = {text_cell(workload), number_cell(static_cast<double>(best.size())),
                                    number_cell(mean), number_cell(deviation), variation_cell(best)}});
    bars.push_back(
        {.category = workload, .value = mean, .interval = metrics::Interval{mean - deviation, mean + deviation}});
  }
  if (table.rows.empty()) return;
  section.tables.push_back(std::move(table));
  section.charts.push_back(
      bar_chart("best-shares", "Best share kept", {.title = "% of full KV's bytes", .zero = true}, bars));
  section.charts.back().caption =
      "Mean over samples; whiskers are one standard deviation, not an interval of the mean.";
}

}  // namespace

std::optional<Section> sample_section(const ExperimentData& data) {
  Section section{.id = "samples", .title = "From sample to sample"};
  add_drops(data, section);
  add_best_methods(data, section);
  add_best_shares(data, section);
  if (section.tables.empty()) return std::nullopt;
  return section;
}

}  // namespace kvarena::reports
