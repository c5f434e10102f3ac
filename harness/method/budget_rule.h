#pragma once
// How a budget is divided among layers and heads. Every rule goes with every scorer:
//
//   {"name": "h2o", "keep": 0.25, "budget_rule": {"name": "heads", "floor": 0.2}}

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/core/parameters.h"
#include "harness/method/selection.h"

namespace kvarena {

/// Scores of one layer; rows differ in length where the layer is ragged.
struct LayerScores {
  std::vector<std::vector<float>> heads;  // [kv_heads][entries]
  Protection protection;                  // under the undivided budget
  double share = 0;                       // the undivided budget before rounding, entries a head
};

using HeadBudgets = std::vector<int64_t>;  // [kv_heads], entries a head may hold

/// A budget to divide: `share` entries a head on average, over the layers whose scores are given.
struct Division {
  double share = 0;  // before rounding: keep * n for a fraction
  std::span<const LayerScores> layers;

  /// Entries of a head under equal division: floor(share), at least 1.
  [[nodiscard]] int64_t capacity() const;
  /// Entries of the longest head.
  [[nodiscard]] int64_t longest() const;
  /// Equal division: capacity() for every head of every layer.
  [[nodiscard]] std::vector<HeadBudgets> equal() const;
  /// Whether every head fits the equal division, which is then kept.
  [[nodiscard]] bool fits() const { return longest() <= capacity(); }
};

class BudgetRule {
 public:
  virtual ~BudgetRule() = default;
  /// The rule with these settings ({"name": "pyramid", "beta": 20}). Adds every problem as a finished message that
  /// starts with `place`.
  [[nodiscard]] static std::unique_ptr<BudgetRule> build(const nlohmann::json& settings, const std::string& place,
                                                         std::vector<std::string>& problems);
  virtual void parameters(ParameterVisitor& /*p*/) {}
  /// Checks over several parameters; messages start with `place`.
  virtual void check(const std::string& /*place*/, std::vector<std::string>& /*problems*/) const {}
  /// Whether a layer's budgets follow from its own scores alone, so that layers can be compressed one by one.
  [[nodiscard]] virtual bool by_layer() const { return true; }
  /// Budgets of each layer's heads, at least 1 each; may exceed what a head holds. Budgets of a cache whose heads fit
  /// the equal division are those of the equal division, so that decoding up to the budget drops nothing.
  [[nodiscard]] virtual std::vector<HeadBudgets> divide(const Division& division) const = 0;
};

/// A rule's name and parameters, for help texts.
struct BudgetRuleInfo {
  std::string name;
  std::string summary;
  std::vector<ParameterInfo> parameters;
};
[[nodiscard]] std::vector<BudgetRuleInfo> budget_rules();

}  // namespace kvarena
