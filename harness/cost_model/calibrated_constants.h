#pragma once
// Constants of a comparison that its paper leaves open, found from some of the paper's own figures.

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/cost_model/comparison.h"

namespace kvarena::cost_model {

/// The key "calibrated" of a comparison's file: a list of groups
///   {"constants": {NAME: ASSUMED or {"assumed": NUMBER, "start": NUMBER}}, "cells": ["ROW: QUANTITY"]}
/// or, where an input was chosen by hand to meet a figure, {"chosen": TEXT, "cells": [...]}. A value {"calibrated":
/// NAME} elsewhere in the file stands for the constant. Groups are found one after the other, each with those before
/// it: the values, at least 0, that make the sum of squared logarithms of modelled over published least over its cells.
/// Cells are spent: they count nowhere.
class CalibratedConstants {
 public:
  using Figures = std::vector<ComparedFigure>;
  using Model = std::function<Figures(const nlohmann::json& file)>;

  /// Throws UserError with the place. `taken` are constants of another file, which are found there.
  CalibratedConstants(const nlohmann::json& file, std::string place, std::vector<CalibratedConstant> taken);

  /// Finds the constants and returns the figures with them: spent ones marked, and beside each what is modelled with
  /// the assumed values. Throws UserError for a cell that the file does not publish.
  [[nodiscard]] Figures find(const Model& model);
  [[nodiscard]] const std::vector<CalibratedConstant>& found() const { return constants_; }
  [[nodiscard]] const std::vector<std::string>& chosen() const { return chosen_; }

 private:
  struct Group {
    size_t first = 0;  // of constants_
    size_t count = 0;
    std::vector<std::string> cells;
  };
  void read_group(const nlohmann::json& group, const std::string& place);
  [[nodiscard]] Figures figures(const Model& model, double CalibratedConstant::*value) const;
  void find_group(const Group& group, const Model& model);

  nlohmann::json file_;
  std::string place_;
  std::vector<CalibratedConstant> constants_;
  std::vector<Group> groups_;
  std::vector<std::string> chosen_;
};

using Residuals = std::function<std::vector<double>(const std::vector<double>& values)>;

/// The values, none below 0, at which the sum of squared residuals is least near `start`: Gauss-Newton steps, halved
/// while they do not help or `residuals` throws UserError. There are at least as many residuals as values.
[[nodiscard]] std::vector<double> least_squares(std::vector<double> start, const Residuals& residuals);

}  // namespace kvarena::cost_model
