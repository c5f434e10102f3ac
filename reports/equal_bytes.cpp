#include "reports/equal_bytes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "harness/core/error.h"
#include "metrics/statistics.h"
#include "metrics/stored_metrics.h"
#include "reports/chart_specs.h"
#include "reports/orders.h"
#include "reports/pooled.h"
#include "reports/protocol_line.h"
#include "reports/ranked_settings.h"
#include "reports/sections.h"
#include "reports/verdict.h"

namespace kvarena::reports {
namespace {

constexpr const char* kShare = metrics::kKeptBytesFraction.name;
constexpr const char* kDistance = metrics::kKlNats.name;
constexpr const char* kAgreement = metrics::kTop1Agreement.name;

constexpr size_t kFewestProtected = 3;  // methods under a protection that are worth an order

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

std::string percent(double share) { return fmt::format("{:.4g}%", 100 * share); }

std::string place_of(const metrics::RankEstimate& estimate) {
  return fmt::format("{} – {}", std::floor(estimate.interval.low), std::ceil(estimate.interval.high));
}

/// Ranks with intervals; none of one sample, of which none can be drawn.
std::vector<metrics::RankEstimate> ranks_of(const std::vector<std::vector<double>>& distances) {
  return distances.front().size() < 2 ? std::vector<metrics::RankEstimate>() : metrics::bootstrap_ranks(distances);
}

/// Distances and ranks in each workload alone.
Table by_workload(const ExperimentData& data, const Chosen& chosen) {
  Table table{.id = "ranking-workloads",
              .title = "By workload",
              .caption = "KL from full KV and the rank of 95 in 100 draws, of the workload's samples alone.",
              .columns = {{.title = "Method", .numeric = false}}};
  for (const Setting* setting : chosen.ranked) table.rows.push_back({.cells = {text_cell(setting->method)}});
  for (const std::string& workload : data.workloads()) {
    const std::vector<std::vector<double>> distances = distances_of(chosen.ranked, workload);
    const std::vector<metrics::RankEstimate> ranks = ranks_of(distances);
    table.columns.push_back({.title = "KL a step",
                             .unit = look_of(data, kDistance).unit,
                             .group = workload,
                             .better = Better::lower,
                             .format = {.style = NumberStyle::significant, .digits = 3}});
    table.columns.push_back({.title = "Rank", .group = workload, .numeric = false});
    for (size_t i = 0; i < distances.size(); ++i) {
      table.rows[i].cells.push_back(number_cell(metrics::mean_of(distances[i])));
      table.rows[i].cells.push_back(text_cell(ranks.empty() ? "" : place_of(ranks[i])));
    }
  }
  return table;
}

Section ranking(const ExperimentData& data, const Chosen& chosen, double share) {
  const MetricLook bytes = look_of(data, kShare), distance = look_of(data, kDistance),
                   agreement = look_of(data, kAgreement);
  const NumberFormat digits{.style = NumberStyle::significant, .digits = 3};
  Table table{
      .id = "ranking",
      .title = fmt::format("At most {} of full KV's bytes", percent(share)),
      .caption =
          "Resident bytes are measured after the prompt, means over all samples: entries, scales, positions, "
          "indexes, and what lies on the device of a cache behind it; layers with a window, which methods leave "
          "alone, are left out on both sides. KL from full KV is teacher-forced on its continuation. Samples are "
          "those that all methods have. Rank of 95 in 100 draws of them: methods whose ranks overlap are in no order.",
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
  const std::vector<metrics::RankEstimate> ranks = ranks_of(distances_of(chosen.ranked, ""));
  for (size_t i = 0; i < chosen.ranked.size(); ++i) {
    const Setting& setting = *chosen.ranked[i];
    const std::string drawn = ranks.empty() ? "" : place_of(ranks[i]);
    TableRow row{.cells = {number_cell(static_cast<double>(i) + 1), text_cell(drawn), text_cell(setting.method),
                           text_cell(setting.label), share_cell(data, setting, bytes),
                           mean_of_pool(pooled(data, setting.label, kDistance), distance),
                           mean_of_pool(pooled(data, setting.label, kAgreement), agreement)}};
    row.cells[0].format = NumberFormat{.style = NumberStyle::fixed, .digits = 0};
    bars.push_back({.category = setting.method, .value = row.cells[5].value, .interval = row.cells[5].interval});
    table.rows.push_back(std::move(row));
  }
  mark_best(table);
  Chart chart = bar_chart("ranking-kl", "KL from full KV at equal bytes", {.title = "KL a step, nats"}, bars);
  chart.caption = "Shorter is better; intervals are over samples.";
  Section section{.id = "ranking", .title = "Ranking", .tables = {std::move(table)}, .charts = {std::move(chart)}};
  if (data.workloads().size() > 1) section.tables.push_back(by_workload(data, chosen));
  return section;
}

/// Methods that are not ranked: what they hold at least, or why there is no number.
std::optional<Section> left_out(const ExperimentData& data, const std::vector<Setting>& settings,
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

/// Tells a ranking from the others of its page: by its model, its budget, what is kept in any case and how questions
/// were asked.
enum Axis : size_t { kModel, kBudget, kProtection, kQuestion, kAxes };

/// A ranking and what was chosen for it.
struct Ranked {
  std::array<std::string, kAxes> place;  // on each axis
  std::vector<Setting> settings;
  ExperimentData data;            // of the chosen settings, on the samples that all of them have
  std::vector<Setting> compared;  // of this data
  Chosen chosen;                  // those ranked are of `compared`
};

/// Names a ranking by those of the first `axes` axes on which rankings of its page differ.
using Naming = std::function<std::string(const Ranked& ranked, size_t axes)>;

Order order_of(const Ranked& ranked, const std::string& workload, const Naming& name) {
  const std::vector<std::vector<double>> distances = distances_of(ranked.chosen.ranked, workload);
  const std::string place = name(ranked, workload.empty() ? kAxes : kQuestion);  // a workload is asked in one way
  Order order{.name = fmt::format("{}{}{}", workload, workload.empty() || place.empty() ? "" : " · ", place)};
  for (size_t i = 0; i < distances.size(); ++i) order.distances[ranked.chosen.ranked[i]->method] = distances[i];
  return order;
}

bool differ_only_on(Axis axis, const Ranked& a, const Ranked& b) {
  for (size_t i = 0; i < kAxes; ++i) {
    if ((a.place[i] == b.place[i]) == (i == axis)) return false;
  }
  return true;
}

/// Agreement of every two rankings that differ on one axis, and of workloads within each; nothing of one workload.
std::optional<Section> agreement(const std::vector<Ranked>& all, const Naming& name) {
  std::vector<std::vector<Order>> compared;
  for (const Axis axis : {kQuestion, kBudget, kProtection, kModel}) {
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t j = i + 1; j < all.size(); ++j) {
        if (differ_only_on(axis, all[i], all[j]))
          compared.push_back({order_of(all[i], "", name), order_of(all[j], "", name)});
      }
    }
  }
  for (const Ranked& ranked : all) {
    std::vector<Order>& workloads = compared.emplace_back();
    for (const auto& [workload, samples] : ranked.chosen.ranked.front()->by_workload)
      workloads.push_back(order_of(ranked, workload, name));
  }
  Table table = agreement_table(compared);
  if (table.rows.empty()) return std::nullopt;
  return Section{.id = "agreement", .title = "How stable the order is", .tables = {std::move(table)}};
}

std::vector<Budget> budgets_of(std::vector<double> shares) {
  std::ranges::sort(shares, std::greater());
  std::vector<Budget> budgets;
  for (size_t i = 0; i < shares.size(); ++i)
    budgets.push_back({.above = i + 1 < shares.size() ? shares[i + 1] : 0, .share = shares[i]});
  return budgets;
}

Naming naming_of(const std::vector<Ranked>& all) {
  std::array<bool, kAxes> told{};
  for (const Ranked& ranked : all) {
    for (size_t i = 0; i < kAxes; ++i) told[i] = told[i] || ranked.place[i] != all.front().place[i];
  }
  return [told](const Ranked& ranked, size_t axes) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < axes; ++i) {
      if (told[i]) parts.push_back(ranked.place[i]);
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  };
}

/// Orders what was chosen by distance, best first behind the baseline, on the samples that all of it has.
void compare_on_shared_samples(Ranked& ranked, const ExperimentData& asked) {
  std::vector<std::string> labels = {asked.baseline()};
  for (const Setting* setting : ranked.chosen.ranked) labels.push_back(setting->label);
  ranked.data = asked.of_methods(labels);
  keep_shared_samples(ranked.data, ranked.chosen.ranked.size());
  ranked.compared = settings_of(ranked.data);
  std::ranges::stable_sort(ranked.compared, {}, &Setting::distance);
  ranked.chosen.ranked.clear();
  std::map<std::string, size_t> rank;  // the baseline's is 0
  for (const Setting& setting : ranked.compared) {
    const size_t place = rank.size() + 1;
    rank[setting.label] = place;
    if (setting.complete()) ranked.chosen.ranked.push_back(&setting);
  }
  std::ranges::stable_sort(ranked.data.cells, {}, [&](const CellData& cell) { return rank[cell.row.cell.method]; });
}

/// Rankings of one model that was asked in one way: as the config has it, and under each protection that methods share.
std::vector<Ranked> rank(const ExperimentData& asked, const std::string& model, const std::string& question,
                         const Budget& budget) {
  std::map<std::string, std::vector<Setting>> by_protection;
  by_protection[""];
  for (Setting& setting : settings_of(asked)) by_protection[setting.protection].push_back(std::move(setting));
  std::vector<Ranked> rankings;
  for (auto& [protection, settings] : by_protection) {
    Ranked ranked{.place = {model, "at most " + percent(budget.share), protection.empty() ? "as published" : protection,
                            "question " + question},
                  .settings = std::move(settings)};
    ranked.chosen = choose(ranked.settings, budget);
    compare_on_shared_samples(ranked, asked);
    if (ranked.chosen.ranked.size() >= (protection.empty() ? 1 : kFewestProtected)) {
      rankings.push_back(std::move(ranked));
    } else if (protection.empty()) {
      fail({.place = asked.experiment.experiment,
            .found = fmt::format("no method that holds more than {} and at most {} of full KV's bytes and has a "
                                 "distance from it",
                                 percent(budget.above), percent(budget.share)),
            .expected = "at least one",
            .action = "give another share"});
    }
  }
  return rankings;
}

std::vector<Section> sections_of(const ExperimentData& asked, const Ranked& ranked, const Budget& budget) {
  const ModelCells cells(ranked.data, /*unlike_prompts=*/false);
  std::vector<Section> sections{ranking(cells.data, ranked.chosen, budget.share),
                                quality_section(cells.data, {&cells, 1})};
  if (auto section = left_out(asked, ranked.settings, ranked.chosen)) sections.push_back(std::move(*section));
  return sections;
}

}  // namespace

Document equal_bytes_report(const ExperimentData& data, const std::vector<double>& shares) {
  Document document{.title = data.experiment.title.empty() ? data.experiment.experiment : data.experiment.title,
                    .provenance = provenance(data)};
  const std::vector<std::string> models = data.models();
  const std::vector<Budget> budgets = budgets_of(shares);
  std::vector<Ranked> all;
  std::vector<std::vector<Section>> sections;  // of each ranking
  for (const std::string& model : models) {
    const ExperimentData own = data.of_model(model);
    for (const Budget& budget : budgets) {
      for (const std::string& question : own.questions()) {
        const ExperimentData asked = own.of_question(question);
        for (Ranked& ranked : rank(asked, model, question, budget)) {
          sections.push_back(sections_of(asked, ranked, budget));
          for (Section& section : sections.back()) caption_question(section, question);
          all.push_back(std::move(ranked));
        }
      }
    }
  }
  const Naming name = naming_of(all);
  for (size_t i = 0; i < all.size(); ++i) {
    for (Section& section : sections[i]) {
      if (const std::string place = name(all[i], kAxes); !place.empty()) name_after(section, place);
      document.sections.push_back(std::move(section));
    }
  }
  std::set<std::string> methods;
  for (const Ranked& ranked : all) {
    for (const Setting* setting : ranked.chosen.ranked) methods.insert(setting->method);
  }
  std::vector<std::string> within;
  for (const Budget& budget : budgets) within.push_back(percent(budget.share));
  document.introduction = {
      fmt::format("{} methods on {} over {}, each with the setting whose measured bytes are the most within {} of "
                  "full KV's. All start from the same full prefill and are paired sample by sample with {}.",
                  methods.size(), fmt::join(models, ", "), fmt::join(data.workloads(), ", "), fmt::join(within, ", "),
                  data.baseline()),
      "Limits: small models, short prompts, samples of one seed; intervals are over samples. Settings beside the "
      "budget are the authors'; weights that a method learns were fitted here, on few texts."};
  if (auto section = agreement(all, name)) document.sections.push_back(std::move(*section));
  mark_invented(document, data.invented);
  return document;
}

}  // namespace kvarena::reports
