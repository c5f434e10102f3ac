#pragma once
// Budget rules that are written in Python (python/kvarena/methods.py).

#include "harness/method/budget_rule.h"
#include "harness/method/python/part.h"

namespace kvarena {

/// Asks a Python process for the budgets of the heads whose scores are given.
class PythonBudgetRule final : public OfPython<BudgetRule> {
 public:
  using OfPython::OfPython;

  [[nodiscard]] bool by_layer() const override;
  [[nodiscard]] std::vector<HeadBudgets> divide(const Division& division) const override;
};

}  // namespace kvarena
