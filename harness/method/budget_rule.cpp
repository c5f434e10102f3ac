#include "harness/method/budget_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/core/error.h"
#include "harness/method/registration.h"
#include "kernels/top_k/top_k.h"

namespace kvarena {
namespace {

using nlohmann::json;

int64_t floor_of(double entries) { return static_cast<int64_t>(std::floor(entries + 1e-9)); }
int64_t ceiling_of(double entries) { return static_cast<int64_t>(std::ceil(entries - 1e-9)); }

class Uniform final : public BudgetRule {
 public:
  std::vector<HeadBudgets> divide(const Division& division) const override { return division.equal(); }
};

/// A layer's own share, relative to the mean of the list: {0.4, 0.2} of keep 0.3 keeps 0.4 and 0.2 of the entries.
class Layers final : public BudgetRule {
 public:
  void parameters(ParameterVisitor& p) override {
    p("shares", shares_).above(0).required().doc("each layer's share of the budget, relative to the list's mean");
  }
  std::vector<HeadBudgets> divide(const Division& division) const override {
    if (shares_.size() != division.layers.size()) {
      fail({.place = "budget_rule.shares",
            .found = fmt::format("{} shares", shares_.size()),
            .expected = fmt::format("one for each of the {} layers", division.layers.size())});
    }
    std::vector<HeadBudgets> budgets = division.equal();
    if (division.fits()) return budgets;
    const double mean = std::accumulate(shares_.begin(), shares_.end(), 0.0) / static_cast<double>(shares_.size());
    for (size_t layer = 0; layer < budgets.size(); ++layer) {
      const int64_t own = std::max<int64_t>(1, floor_of(division.share * shares_[layer] / mean));
      std::ranges::fill(budgets[layer], own);
    }
    return budgets;
  }

 private:
  std::vector<double> shares_;
};

/// Budgets fall linearly with depth from 2 - 1/beta to 1/beta times the mean.  w is the protected window.
///   kvpress  lowest = B/beta, highest = 2B - lowest in real numbers, B = keep n, cut to n - w; round(highest - l
///   step),
///            the window included; equal division (rounded) unless n >= highest >= lowest >= w.
///   authors  the same in integers over B - w with the window added; equal division below 2 (B - w) entries. Their mean
///            drifts from B by the integer divisions.
/// Cai et al. 2024 (PyramidKV), arXiv:2406.02069, section 4.2, and the two implementations' code.
class Pyramid final : public BudgetRule {
 public:
  void parameters(ParameterVisitor& p) override {
    p("beta", beta_).min(1).doc("the last layer gets 1/beta of the mean budget");
    p("form", form_).one_of({"kvpress", "authors"}).doc("real numbers as in kvpress, or the authors' integers");
  }
  std::vector<HeadBudgets> divide(const Division& division) const override {
    std::vector<HeadBudgets> budgets = division.equal();
    if (division.fits()) return budgets;
    const int64_t window = division.layers.front().protection.recent;
    const auto layers = static_cast<int64_t>(budgets.size());
    for (int64_t layer = 0; layer < layers; ++layer) {
      const int64_t own =
          form_ == "kvpress" ? by_reals(division, window, layer, layers) : by_integers(division, window, layer, layers);
      std::ranges::fill(budgets[layer], std::max<int64_t>(1, own));
    }
    return budgets;
  }

 private:
  [[nodiscard]] int64_t by_reals(const Division& division, int64_t window, int64_t layer, int64_t layers) const {
    const auto n = static_cast<double>(division.longest());
    const auto w = static_cast<double>(window);
    double lowest = division.share / static_cast<double>(beta_);
    double highest = 2 * division.share - lowest;
    if (highest >= n - w) {
      highest = n - w;
      lowest = 2 * division.share - highest;
    }
    if (!(n >= highest && highest >= lowest && lowest >= w)) return std::llrint(division.share);
    const double step = layers > 1 ? (highest - lowest) / static_cast<double>(layers - 1) : 0;
    return std::llrint(highest - static_cast<double>(layer) * step);  // ties to even, as Python's round
  }

  [[nodiscard]] int64_t by_integers(const Division& division, int64_t window, int64_t layer, int64_t layers) const {
    const int64_t n = division.longest();
    const int64_t prefix = division.capacity() - window;
    if (prefix <= 0 || n < 2 * prefix) return division.capacity();
    int64_t lowest = prefix / beta_;
    int64_t highest = 2 * prefix - lowest;
    if (highest >= n - window) {
      highest = n - window;
      lowest = 2 * prefix - highest;
    }
    const int64_t step = layers > 1 ? (highest - lowest) / (layers - 1) : 0;
    return highest - layer * step + window;
  }

  int64_t beta_ = 20;
  std::string form_ = "kvpress";
};

/// Heads compete for entries: the best of all heads' entries together, with a floor for every head.
///   kvpress  a head's floor is its best int(B floor) entries; then the best of all until the total is met.
///   authors  over B - w entries without the window: c_j of the total's best lie in head j, which gets
///            round(c_j (1 - floor)) + int((B - w) floor) and the window. Rounding may miss the total by a few.
/// Feng et al. 2024 (AdaKV), arXiv:2407.11550, Algorithm 1, and the two implementations' code.
class Competition final : public BudgetRule {
 public:
  enum class Scope { layer, cache };
  Competition(Scope scope, double floor) : scope_(scope), floor_(floor) {}

  void parameters(ParameterVisitor& p) override {
    p("floor", floor_).min(0).max(1).doc("fraction of an equal budget that every head is sure of");
    p("form", form_).one_of({"kvpress", "authors"}).doc("how the floor enters: see the rule's comment");
  }
  bool by_layer() const override { return scope_ == Scope::layer; }
  std::vector<HeadBudgets> divide(const Division& division) const override {
    std::vector<HeadBudgets> budgets = division.equal();
    if (division.fits()) return budgets;
    if (scope_ == Scope::cache) {
      compete(division, division.layers, budgets);
      return budgets;
    }
    for (size_t layer = 0; layer < budgets.size(); ++layer) {
      compete(division, division.layers.subspan(layer, 1), std::span(budgets).subspan(layer, 1));
    }
    return budgets;
  }

 private:
  /// Entries of a head that are sure before heads compete.
  [[nodiscard]] int64_t sure_of(int64_t capacity, const Protection& protection) const {
    const int64_t guarded = std::min(capacity, protection.sinks + protection.recent);
    if (form_ == "authors") return guarded;
    const auto safe = static_cast<int64_t>(static_cast<double>(capacity) * floor_);
    return std::max<int64_t>({1, guarded, safe});  // also without a floor no head is left empty
  }

  /// Entries of all heads that compete together: a layer's heads have equal budgets in sum, the whole cache drops
  /// int(entries (1 - keep)), as kvpress's AdaKVPress and KVzipPress do.
  [[nodiscard]] int64_t total_of(const Division& division, int64_t heads) const {
    const int64_t equal = heads * division.capacity();
    return scope_ == Scope::layer ? equal : std::max(equal, ceiling_of(division.share * static_cast<double>(heads)));
  }

  void compete(const Division& division, std::span<const LayerScores> layers, std::span<HeadBudgets> budgets) const {
    const int64_t capacity = division.capacity();
    std::vector<float> open;       // scores of the entries that compete, head after head
    std::vector<int64_t> ends;     // of each head in `open`
    std::vector<int64_t> certain;  // entries of each head that do not
    for (const LayerScores& layer : layers) {
      for (const std::vector<float>& row : layer.heads) {
        const std::vector<int32_t> sure = select_best(row, sure_of(capacity, layer.protection), layer.protection);
        auto next = sure.begin();
        for (int32_t i = 0; i < static_cast<int32_t>(row.size()); ++i) {
          if (next != sure.end() && *next == i) {
            ++next;
          } else {
            open.push_back(row[i]);
          }
        }
        ends.push_back(static_cast<int64_t>(open.size()));
        certain.push_back(static_cast<int64_t>(sure.size()));
      }
    }
    const int64_t total =
        total_of(division, std::ssize(ends)) - std::accumulate(certain.begin(), certain.end(), int64_t{0});
    std::vector<int32_t> best(open.size());
    const int64_t found = kernels::top_k(open.data(), static_cast<int64_t>(open.size()), total, best.data());
    KVARENA_ASSERT(found >= 0, "a score that is not a number");
    best.resize(static_cast<size_t>(found));

    size_t head = 0;
    auto from = best.begin();
    for (HeadBudgets& layer : budgets) {
      for (int64_t& budget : layer) {
        const auto to = std::lower_bound(from, best.end(), static_cast<int32_t>(ends[head]));
        budget = std::max<int64_t>(1, head_budget(capacity, certain[head], to - from));
        from = to;
        ++head;
      }
    }
  }

  [[nodiscard]] int64_t head_budget(int64_t capacity, int64_t certain, int64_t won) const {
    if (form_ == "kvpress") return certain + won;
    const auto base = static_cast<double>(capacity - certain);
    return certain + std::llrint(static_cast<double>(won) * (1 - floor_) + std::floor(base * floor_));
  }

  Scope scope_;
  double floor_;
  std::string form_ = "kvpress";
};

/// The i-th best entries of a layer's heads are one composite entry, worth the mean of their scores; the best of all
/// layers' composites stay, so that the heads of a layer hold the same number. The first layer's are worth as much as
/// the best layer's at each i, so that none holds more: caches whose length is the first layer's can hold the rest.
/// Akulov et al. 2025 (KVCompose), arXiv:2509.05165, section 3.3, and kvpress's KVComposePress.
class Composite final : public BudgetRule {
 public:
  bool by_layer() const override { return false; }
  std::vector<HeadBudgets> divide(const Division& division) const override {
    std::vector<HeadBudgets> budgets = division.equal();
    if (division.fits()) return budgets;
    const auto longest = static_cast<size_t>(division.longest());
    std::vector<float> worth;  // [layers, longest]
    for (const LayerScores& layer : division.layers) {
      const std::vector<float> own = composites(layer, longest);
      worth.insert(worth.end(), own.begin(), own.end());
    }
    for (size_t i = longest; i < worth.size(); ++i) worth[i % longest] = std::max(worth[i % longest], worth[i]);
    const auto layers = static_cast<double>(budgets.size());
    std::vector<int32_t> best(worth.size());
    const int64_t found = kernels::top_k(worth.data(), std::ssize(worth),
                                         std::max<int64_t>(1, floor_of(division.share * layers)), best.data());
    KVARENA_ASSERT(found >= 0, "a score that is not a number");
    for (HeadBudgets& layer : budgets) std::ranges::fill(layer, 0);
    for (int64_t i = 0; i < found; ++i) {
      for (int64_t& head : budgets[static_cast<size_t>(best[i]) / longest]) ++head;
    }
    for (HeadBudgets& layer : budgets)
      std::ranges::for_each(layer, [](int64_t& head) { head = std::max<int64_t>(1, head); });
    return budgets;
  }

 private:
  /// Mean scores of the i-th best entries of the heads; heads with fewer entries do not count.
  [[nodiscard]] static std::vector<float> composites(const LayerScores& layer, size_t longest) {
    std::vector<float> sums(longest, 0.0F), counts(longest, 0.0F);
    for (std::vector<float> head : layer.heads) {
      std::ranges::sort(head, std::greater());
      for (size_t i = 0; i < head.size(); ++i) {
        sums[i] += head[i];
        ++counts[i];
      }
    }
    for (size_t i = 0; i < longest; ++i)
      sums[i] = counts[i] > 0 ? sums[i] / counts[i] : -std::numeric_limits<float>::infinity();
    return sums;
  }
};

/// Rules that configs name: those of this file, and behind them those of plugins.
std::vector<detail::BudgetRuleEntry>& rules() {
  using Scope = Competition::Scope;
  static std::vector<detail::BudgetRuleEntry> all = {
      {"uniform", "the same number for every head of every layer", [] { return std::make_unique<Uniform>(); }},
      {"layers", "a share for each layer, from a list", [] { return std::make_unique<Layers>(); }},
      {"pyramid", "fewer entries the deeper the layer", [] { return std::make_unique<Pyramid>(); }},
      {"heads", "the heads of a layer compete for its entries, each with a floor",
       [] { return std::make_unique<Competition>(Scope::layer, 0.2); }},
      {"global", "all heads of all layers compete", [] { return std::make_unique<Competition>(Scope::cache, 0.0); }},
      {"composite", "layers compete with the mean scores of their heads' best entries",
       [] { return std::make_unique<Composite>(); }}};
  return all;
}

}  // namespace

std::unique_ptr<BudgetRule> BudgetRule::build(const json& spec, const std::string& place,
                                              std::vector<std::string>& problems) {
  const auto name = spec.value("name", "");
  const auto entry = std::ranges::find(rules(), name, &detail::BudgetRuleEntry::name);
  if (entry == rules().end()) {
    std::vector<std::string> names;
    for (const detail::BudgetRuleEntry& rule : rules()) names.push_back(rule.name);
    problems.push_back(describe({.place = place + ".name",
                                 .found = fmt::format("\"{}\"", name),
                                 .expected = fmt::format("one of: {}", fmt::join(names, ", ")),
                                 .nearest = nearest_name(name, names)}));
    return nullptr;
  }
  auto rule = entry->create();
  const auto found = read_parameters(spec, place, [&](ParameterVisitor& p) { rule->parameters(p); });
  problems.insert(problems.end(), found.begin(), found.end());
  if (found.empty()) rule->check(place, problems);
  return rule;
}

namespace detail {

void add_budget_rule(const std::filesystem::path& plugin, BudgetRuleEntry rule) {
  if (std::ranges::find(rules(), rule.name, &BudgetRuleEntry::name) != rules().end()) {
    fail({.place = plugin.string(),
          .found = fmt::format("a budget rule \"{}\", a name that is taken", rule.name),
          .expected = "names that no other rule has"});
  }
  rules().push_back(std::move(rule));
}

}  // namespace detail

int64_t Division::capacity() const { return std::max<int64_t>(1, floor_of(share)); }

int64_t Division::longest() const {
  size_t longest = 0;
  for (const LayerScores& layer : layers) {
    for (const auto& row : layer.heads) longest = std::max(longest, row.size());
  }
  return static_cast<int64_t>(longest);
}

std::vector<HeadBudgets> Division::equal() const {
  std::vector<HeadBudgets> budgets;
  for (const LayerScores& layer : layers) budgets.emplace_back(layer.heads.size(), capacity());
  return budgets;
}

std::vector<BudgetRuleInfo> budget_rules() {
  std::vector<BudgetRuleInfo> infos;
  for (const detail::BudgetRuleEntry& entry : rules()) {
    const auto rule = entry.create();
    infos.push_back({.name = entry.name,
                     .summary = entry.summary,
                     .parameters = list_parameters([&](ParameterVisitor& p) { rule->parameters(p); })});
  }
  return infos;
}

}  // namespace kvarena
