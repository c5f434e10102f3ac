#pragma once
// Scorers that are written in Python (python/kvarena/methods.py).

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "harness/method/python/child.h"
#include "harness/method/scorer.h"

namespace kvarena {

/// Asks a Python process for the scores of each layer, and before, once for each group of settings, for what the scorer
/// reads and protects. Holds settings only, so that a process that died can be started again.
class PythonScorer final : public Scorer {
 public:
  /// `description` is one of PythonChild::methods().
  PythonScorer(std::shared_ptr<PythonChild> child, const nlohmann::json& description);

  void parameters(ParameterVisitor& p) override;
  void check(const std::string& place, std::vector<std::string>& problems) const override;
  [[nodiscard]] Needs needs() const override;
  [[nodiscard]] Protection protect(int64_t budget) const override;
  [[nodiscard]] at::Tensor score(const LayerView& layer) const override;

 private:
  struct Parameter {
    ParameterInfo info;
    std::variant<bool, int64_t, double, std::string> value;
  };

  [[nodiscard]] nlohmann::json settings() const;
  /// Needs and protected entries of the scorer with these settings, {"needs", "protect"}. Throws UserError where its
  /// __init__ raises.
  [[nodiscard]] const nlohmann::json& made() const;

  std::shared_ptr<PythonChild> child_;
  std::string name_;
  std::vector<Parameter> parameters_;
  mutable nlohmann::json made_;
  mutable nlohmann::json made_of_;  // settings of made_
};

}  // namespace kvarena
