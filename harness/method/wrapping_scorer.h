#pragma once
// A scorer over another one's scores: {"name": "chunkkv", "scorer": {"name": "snapkv", "window": 32}, "keep": 0.5}.

#include <string>

#include "harness/method/scorer.h"

namespace kvarena {

/// Takes any dropping method's scorer by name and passes on everything that is not overridden. The budget and its
/// rule belong to the wrapper.
class WrappingScorer : public Scorer {
 public:
  /// `standard`: the scorer wrapped unless the user names another, as JSON.
  explicit WrappingScorer(const std::string& standard) : scorer_(standard) {}

  /// Overriders call this first.
  void parameters(ParameterVisitor& p) override;

  [[nodiscard]] Needs needs() const override { return base().needs(); }
  [[nodiscard]] at::Tensor score(const LayerView& layer) const override { return base().score(layer); }
  [[nodiscard]] Protection protect(int64_t budget) const override { return base().protect(budget); }
  void refine(const LayerView& view, LayerScores& scores, HeadBudgets& budgets) const override {
    base().refine(view, scores, budgets);
  }
  [[nodiscard]] bool evicts_while_decoding() const override { return base().evicts_while_decoding(); }
  [[nodiscard]] int64_t score_width() const override { return base().score_width(); }
  [[nodiscard]] at::Tensor remember_prompt(const LayerView& layer) const override {
    return base().remember_prompt(layer);
  }
  void observe(const StepAttention& step) const override { base().observe(step); }

 protected:
  /// The wrapped scorer.
  [[nodiscard]] const Scorer& base() const { return *scorer_; }
  [[nodiscard]] const Nested<Scorer>& wrapped() const { return scorer_; }

 private:
  Nested<Scorer> scorer_;
};

}  // namespace kvarena
