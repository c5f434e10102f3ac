#include "reports/equal_bytes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

#include "harness/core/error.h"
#include "reports/orders.h"
#include "reports/protocol_line.h"
#include "reports/ranked_settings.h"
#include "reports/ranking_tables.h"
#include "reports/sections.h"

namespace kvarena::reports {
namespace {

constexpr const char* kAsPublished = "as published";
constexpr size_t kFewestProtected = 3;  // methods under a protection that are worth an order

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
  const std::string place = name(ranked, workload.empty() ? kAxes : kQuestion);  // a workload is asked in one way
  Order order{.name = fmt::format("{}{}{}", workload, workload.empty() || place.empty() ? "" : " · ", place)};
  for (const Setting* setting : ranked.chosen.ranked) order.distances[setting->method] = setting->distances(workload);
  const Setting& any = *ranked.chosen.ranked.front();
  order.certain = has_intervals(any, workload);
  for (const Samples* samples : any.in(workload)) {
    for (const auto& [sample, distance] : *samples) order.samples.push_back(sample);
  }
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
      if (told[i]) parts.push_back(i == kQuestion ? "question " + ranked.place[i] : ranked.place[i]);
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
    Ranked ranked{.place = {model, "at most " + percent_of(budget.share),
                            protection.empty() ? kAsPublished : protection, question},
                  .settings = std::move(settings)};
    ranked.chosen = choose(ranked.settings, budget);
    compare_on_shared_samples(ranked, asked);
    if (ranked.chosen.ranked.size() >= (protection.empty() ? 1 : kFewestProtected)) {
      rankings.push_back(std::move(ranked));
    } else if (protection.empty()) {
      fail({.place = asked.experiment.experiment,
            .found = fmt::format("no method that holds more than {} and at most {} of full KV's bytes and has a "
                                 "distance from it",
                                 percent_of(budget.above), percent_of(budget.share)),
            .expected = "at least one",
            .action = "give another share"});
    }
  }
  return rankings;
}

std::vector<Section> sections_of(const ExperimentData& asked, const Ranked& ranked, const Budget& budget) {
  std::vector<Section> sections{ranking_section(ranked.data, ranked.chosen, budget.share)};
  if (auto section = beyond_section(asked, ranked.settings, ranked.chosen)) sections.push_back(std::move(*section));
  return sections;
}

/// Overviews of models that have several rankings, in the order of the plan.
std::vector<Section> overviews(const std::vector<Ranked>& all, const std::vector<std::string>& models) {
  std::vector<Section> sections;
  for (const std::string& model : models) {
    std::vector<OverviewColumn> columns;
    for (const Ranked& ranked : all) {
      if (ranked.place[kModel] != model) continue;
      const bool published = ranked.place[kProtection] == kAsPublished;
      columns.push_back(
          {.group = fmt::format("{}{}", ranked.place[kBudget], published ? "" : ", " + ranked.place[kProtection]),
           .title = ranked.place[kQuestion],
           .ranked = &ranked.chosen.ranked});
    }
    if (columns.size() < 2) continue;
    sections.push_back(overview_section(columns));
    if (models.size() > 1) name_after(sections.back(), model);
  }
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
          for (Section& section : sections.back()) {
            caption_question(section, question);
            caption_contexts(section, asked);
          }
          all.push_back(std::move(ranked));
        }
      }
    }
  }
  const Naming name = naming_of(all);
  document.sections = overviews(all, models);
  if (auto section = agreement(all, name)) document.sections.push_back(std::move(*section));
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
  for (const Budget& budget : budgets) within.push_back(percent_of(budget.share));
  document.introduction = {
      fmt::format("{} methods on {} over {}, each with the setting whose measured bytes are the most within {} of "
                  "full KV's. All start from the same full prefill and are paired sample by sample with {}.",
                  methods.size(), fmt::join(models, ", "), fmt::join(data.workloads(), ", "), fmt::join(within, ", "),
                  data.baseline()),
      "Limits: small models, short prompts, samples of one seed; intervals are over samples, and over contexts where "
      "several ask about one. Settings beside the budget are the authors'; weights that a method learns were fitted "
      "here, on few texts."};
  mark_invented(document, data.invented);
  return document;
}

}  // namespace kvarena::reports
