#include "reports/context_lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/statistics.h"
#include "metrics/stored_metrics.h"
#include "reports/emulated.h"
#include "reports/serving_points.h"

namespace kvarena::reports {
namespace {

constexpr double kFewerTokens = 0.67;  // that the shorter half has at most, of the longer half's

/// The answered requests of one point of a cell.
struct Requests {
  const CellData* cell = nullptr;
  std::string point;
  std::vector<float> tokens, first_ms, similarity;  // by request

  [[nodiscard]] bool known() const {
    return !tokens.empty() && tokens.size() == first_ms.size() && tokens.size() == similarity.size();
  }
  /// Mean of `values` over the requests with more tokens than `bound`, or with no more.
  [[nodiscard]] double mean(const std::vector<float>& values, float bound, bool longer) const {
    std::vector<double> chosen;
    for (size_t r = 0; r < tokens.size(); ++r) {
      if (std::isfinite(first_ms[r]) && (tokens[r] > bound) == longer) chosen.push_back(values[r]);
    }
    return chosen.empty() ? NAN : metrics::mean_of(chosen);
  }
  [[nodiscard]] float median_tokens() const {
    std::vector<float> sorted = tokens;
    std::ranges::sort(sorted);
    return sorted[(sorted.size() - 1) / 2];
  }
};

TableRow row_of(const Requests& requests, float bound) {
  TableRow row{.cells = {text_cell(requests.cell->row.cell.method), text_cell(requests.cell->row.cell.workload),
                         text_cell(requests.point), number_cell(bound)}};
  for (const bool longer : {false, true}) {
    const double first = requests.mean(requests.first_ms, bound, longer);
    row.cells.push_back(std::isfinite(first) ? number_cell(requests.mean(requests.similarity, bound, longer))
                                             : TableCell{});
    row.cells.push_back(std::isfinite(first) ? number_cell(first) : TableCell{});
    row.cells.back().emulated = is_emulated(*requests.cell, metrics::kTimeToFirstTokenMs.name);
  }
  return row;
}

}  // namespace

std::vector<float> first_token_by_request(const CellData& cell, const std::string& point) {
  std::vector<float> by_request = series_of(cell, metrics::kAnsweredMs.name, point);
  const std::vector<float> answered = series_of(cell, metrics::kTimeToFirstTokenMs.name, point);
  size_t next = 0;
  for (float& one : by_request) {
    if (!std::isfinite(one)) continue;
    if (next == answered.size()) return {};
    one = answered[next++];
  }
  return next == answered.size() ? by_request : std::vector<float>{};
}

std::optional<Table> context_length_table(std::span<const CellData* const> cells) {
  constexpr NumberFormat kWhole{.style = NumberStyle::fixed, .digits = 0};
  constexpr NumberFormat kTime{.style = NumberStyle::fixed, .digits = 1};
  constexpr NumberFormat kShare{.style = NumberStyle::fixed, .digits = 3};
  Table table{
      .id = "context-lengths",
      .title = "Short and long prompts",
      .caption =
          "Answered requests of the shorter half, up to so many tokens, and of the longer half: mean similarity "
          "to full KV's answers, mean time to first token.",
      .columns = {{.title = "Method", .numeric = false},
                  {.title = "Workload", .numeric = false},
                  {.title = "Load", .numeric = false},
                  {.title = "Up to", .unit = "tokens", .format = kWhole},
                  {.title = "Similarity", .group = "Shorter", .format = kShare},
                  {.title = "Time to first token", .unit = "ms", .group = "Shorter", .format = kTime},
                  {.title = "Similarity", .group = "Longer", .format = kShare},
                  {.title = "Time to first token", .unit = "ms", .group = "Longer", .format = kTime}}};
  for (const CellData* cell : cells) {
    for (const std::string& point : points_of(*cell)) {
      const Requests requests{.cell = cell,
                              .point = point,
                              .tokens = series_of(*cell, metrics::kRequestTokens.name, point),
                              .first_ms = first_token_by_request(*cell, point),
                              .similarity = series_of(*cell, metrics::kAnswerSimilarity.name, point)};
      if (!requests.known()) continue;
      const float bound = requests.median_tokens();
      const double shorter = requests.mean(requests.tokens, bound, false);
      if (!(shorter < kFewerTokens * requests.mean(requests.tokens, bound, true))) continue;
      table.rows.push_back(row_of(requests, bound));
    }
  }
  if (table.rows.empty()) return std::nullopt;
  return table;
}

}  // namespace kvarena::reports
