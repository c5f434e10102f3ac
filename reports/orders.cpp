#include "reports/orders.h"

#include <algorithm>
#include <optional>

#include "metrics/statistics.h"
#include "reports/table.h"

namespace kvarena::reports {
namespace {

TableRow agreement_row(const Order& a, const Order& b) {
  std::vector<std::vector<double>> of_a, of_b;
  for (const auto& [method, distances] : a.distances) {
    if (!b.distances.contains(method)) continue;
    of_a.push_back(distances);
    of_b.push_back(b.distances.at(method));
  }
  const metrics::OrderAgreement found = metrics::kendall_tau(of_a, of_b, a.samples == b.samples);
  std::optional<metrics::Interval> interval;
  if (a.certain && b.certain) interval = found.interval;
  return {.cells = {text_cell(a.name), text_cell(b.name), number_cell(static_cast<double>(of_a.size())),
                    number_cell(found.tau, interval)}};
}

bool share_a_method(const Order& a, const Order& b) {
  return std::ranges::any_of(a.distances, [&](const auto& each) { return b.distances.contains(each.first); });
}

bool has_samples(const Order& order) { return !order.distances.empty() && !order.samples.empty(); }

}  // namespace

Table agreement_table(const std::vector<std::vector<Order>>& groups) {
  Table table{.id = "agreement",
              .title = "Agreement of orders",
              .caption =
                  "Kendall's tau of KL from full KV: 1 for the same order, 0 for none in common. Its interval is over "
                  "samples, drawn for both orders together where both have the same.",
              .columns = {{.title = "Order", .numeric = false},
                          {.title = "Beside", .numeric = false},
                          {.title = "Methods", .format = {.style = NumberStyle::fixed, .digits = 0}},
                          {.title = "Kendall's tau", .format = {.style = NumberStyle::fixed, .digits = 2}}}};
  for (const std::vector<Order>& group : groups) {
    for (size_t i = 0; i < group.size(); ++i) {
      for (size_t j = i + 1; j < group.size(); ++j) {
        if (!has_samples(group[i]) || !has_samples(group[j]) || !share_a_method(group[i], group[j])) continue;
        table.rows.push_back(agreement_row(group[i], group[j]));
      }
    }
  }
  return table;
}

}  // namespace kvarena::reports
