#include "harness/cost_model/calibrated_constants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>

#include "harness/core/error.h"
#include "harness/core/json_text.h"
#include "harness/core/parameters.h"
#include "harness/cost_model/description.h"

namespace kvarena::cost_model {
namespace {

using nlohmann::json;
using Figures = CalibratedConstants::Figures;

constexpr const char* kKey = "calibrated";

/// A constant as a file describes it; a number alone is the assumed value.
struct Constant {
  double assumed = 0;
  std::optional<double> start;  // of the search, where the assumed value has no slope

  void parameters(ParameterVisitor& p) {
    p("assumed", assumed).min(0).required();
    p("start", start).min(0);
  }
};

/// Solves a x = b, `a` square and positive definite.
std::vector<double> solve(std::vector<std::vector<double>> a, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t k = 0; k < n; ++k) {
    for (size_t i = k + 1; i < n; ++i) {
      const double factor = a[i][k] / a[k][k];
      for (size_t j = k; j < n; ++j) a[i][j] -= factor * a[k][j];
      b[i] -= factor * b[k];
    }
  }
  for (size_t k = n; k-- > 0;) {
    for (size_t j = k + 1; j < n; ++j) b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
  return b;
}

double square_sum(const std::vector<double>& x) { return std::inner_product(x.begin(), x.end(), x.begin(), 0.0); }

/// Infinite residuals where the model refuses the values.
std::vector<double> residuals_at(const Residuals& residuals, const std::vector<double>& values, size_t count) {
  try {
    return residuals(values);
  } catch (const UserError&) {
    return std::vector<double>(count, std::numeric_limits<double>::infinity());
  }
}

/// Every value {"calibrated": NAME} below `node` replaced by the constant.
void substitute(json& node, const std::map<std::string, double>& values, const std::string& place) {
  if (node.is_object() && node.size() == 1 && node.contains(kKey) && node[kKey].is_string()) {
    const auto found = values.find(node[kKey].get<std::string>());
    if (found == values.end()) {
      std::vector<std::string> names;
      for (const auto& [name, value] : values) names.push_back(name);
      fail({.place = place,
            .found = fmt::format("the constant {}", node[kKey].dump()),
            .expected = fmt::format("one of: {}", fmt::join(names, ", "))});
    }
    node = found->second;
    return;
  }
  if (!node.is_structured()) return;
  for (const auto& [key, value] : node.items()) {
    if (key != kKey) substitute(value, values, node.is_array() ? fmt::format("{}[{}]", place, key) : place + "." + key);
  }
}

/// The published figure "ROW: QUANTITY"; null where there is none.
auto* cell_of(auto& figures, const std::string& cell) {
  const auto found = std::ranges::find_if(
      figures, [&](const ComparedFigure& figure) { return figure.row + ": " + figure.quantity == cell; });
  return found == figures.end() || !found->published ? nullptr : &*found;
}

}  // namespace

std::vector<double> least_squares(std::vector<double> x, const Residuals& residuals) {
  std::vector<double> r = residuals(x);
  for (int64_t round = 0; round < 100; ++round) {
    std::vector<std::vector<double>> slopes;  // of each value: d residuals
    for (size_t k = 0; k < x.size(); ++k) {
      std::vector<double> moved = x;
      const double step = 1e-6 * std::max(1.0, std::abs(x[k]));
      moved[k] += step;
      slopes.push_back(residuals(moved));
      for (size_t i = 0; i < r.size(); ++i) slopes[k][i] = (slopes[k][i] - r[i]) / step;
    }
    std::vector<std::vector<double>> products(x.size(), std::vector<double>(x.size()));
    std::vector<double> against(x.size());
    for (size_t k = 0; k < x.size(); ++k) {
      for (size_t j = 0; j < x.size(); ++j)
        products[k][j] = std::inner_product(slopes[k].begin(), slopes[k].end(), slopes[j].begin(), 0.0);
      products[k][k] = products[k][k] * (1 + 1e-12) + 1e-300;  // a constant that changes nothing stays
      against[k] = -std::inner_product(slopes[k].begin(), slopes[k].end(), r.begin(), 0.0);
    }
    const std::vector<double> step = solve(products, against);
    bool better = false;
    for (double share = 1; share > 1e-6 && !better; share /= 2) {
      std::vector<double> next = x;
      for (size_t k = 0; k < x.size(); ++k) {
        next[k] = std::max(0.0, x[k] + share * step[k]);
        if (x[k] > 0) next[k] = std::clamp(next[k], x[k] / 2, x[k] * 2);  // a slope says little from far
      }
      std::vector<double> there = residuals_at(residuals, next, r.size());
      better = square_sum(there) < square_sum(r);
      if (better) {
        x = std::move(next);
        r = std::move(there);
      }
    }
    if (!better) break;
  }
  return x;
}

CalibratedConstants::CalibratedConstants(const json& file, std::string place, std::vector<CalibratedConstant> taken)
    : file_(file), place_(std::move(place)), constants_(std::move(taken)) {
  const json groups = file.value(kKey, json::array());
  if (groups.is_string()) return;  // another file finds them
  const std::string key = fmt::format("{}.{}", place_, kKey);
  if (!groups.is_array())
    fail({.place = key, .found = brief(groups), .expected = "a list of groups or another file's name"});
  for (size_t i = 0; i < groups.size(); ++i) read_group(groups[i], fmt::format("{}[{}]", key, i));
}

void CalibratedConstants::read_group(const json& group, const std::string& place) {
  const auto wrong = [&](const json& found, const std::string& where, const std::string& expected) {
    fail({.place = where, .found = brief(found), .expected = expected});
  };
  if (!group.is_object()) wrong(group, place, "an object");
  for (const auto& [key, value] : group.items()) {
    if (key != "constants" && key != "cells" && key != "chosen") wrong(key, place, "constants, chosen, cells");
  }
  Group read{.first = constants_.size()};
  const json cells = group.value("cells", json()), constants = group.value("constants", json::object());
  if (!cells.is_array() || cells.empty()) wrong(cells, place + ".cells", "a list of \"ROW: QUANTITY\"");
  for (const json& cell : cells) {
    if (!cell.is_string()) wrong(cell, place + ".cells", "\"ROW: QUANTITY\"");
    read.cells.push_back(cell);
  }
  for (const auto& [name, given] : constants.items()) {
    Constant constant;
    std::vector<std::string> problems;
    const std::string constant_place = place + ".constants." + name;
    read_part(given.is_number() ? json{{"assumed", given}} : given, constant_place, constant, problems);
    throw_problems(problems);
    constants_.push_back(
        {.name = name, .assumed = constant.assumed, .value = constant.start.value_or(constant.assumed)});
    ++read.count;
  }
  if (read.cells.size() < read.count) wrong(cells, place + ".cells", fmt::format("at least {}", read.count));
  if (group.contains("chosen") == (read.count > 0)) wrong(group, place, "constants or what was chosen");
  if (group.contains("chosen")) {
    const json& chosen = group["chosen"];
    if (!chosen.is_string()) wrong(chosen, place + ".chosen", "text that says what was chosen");
    chosen_.push_back(chosen);
  }
  groups_.push_back(std::move(read));
}

Figures CalibratedConstants::figures(const Model& model, double CalibratedConstant::*value) const {
  std::map<std::string, double> values;
  for (const CalibratedConstant& constant : constants_) values[constant.name] = constant.*value;
  json file = file_;
  file.erase(kKey);
  substitute(file, values, place_);
  return model(file);
}

void CalibratedConstants::find_group(const Group& group, const Model& model) {
  const auto own = std::span(constants_).subspan(group.first, group.count);
  std::vector<double> start;
  for (const CalibratedConstant& constant : own) start.push_back(constant.value);
  const auto set = [&](const std::vector<double>& values) {
    for (size_t k = 0; k < values.size(); ++k) own[k].value = values[k];
  };
  set(least_squares(start, [&](const std::vector<double>& values) {
    set(values);
    const Figures now = figures(model, &CalibratedConstant::value);
    std::vector<double> residuals;
    for (const std::string& cell : group.cells) {
      const ComparedFigure* figure = cell_of(now, cell);
      residuals.push_back(std::log(figure->modelled / *figure->published));
    }
    return residuals;
  }));
}

Figures CalibratedConstants::find(const Model& model) {
  const Figures assumed = figures(model, &CalibratedConstant::assumed);
  for (const Group& group : groups_) {
    for (const std::string& cell : group.cells) {
      if (cell_of(assumed, cell) != nullptr) continue;
      fail({.place = place_ + "." + kKey,
            .found = fmt::format("the cell \"{}\"", cell),
            .expected = "\"ROW: QUANTITY\" of a published figure of this file"});
    }
    if (group.count > 0) find_group(group, model);
  }
  Figures found = constants_.empty() ? assumed : figures(model, &CalibratedConstant::value);
  for (size_t i = 0; i < found.size(); ++i) found[i].assumed = assumed[i].modelled;
  for (const Group& group : groups_) {
    for (const std::string& cell : group.cells) cell_of(found, cell)->spent = true;
  }
  return found;
}

}  // namespace kvarena::cost_model
