#pragma once
// Reading of files that describe machines, models and published figures.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/core/json_text.h"

namespace kvarena::cost_model {

/// Parses an object, or throws UserError.
[[nodiscard]] nlohmann::json parse_object(const std::string& text, const std::string& place);

/// Fills `part` from `value` by its parameters(); problems join the list.
template <typename Part>
void read_part(const nlohmann::json& value, const std::string& place, Part& part, std::vector<std::string>& problems) {
  const std::vector<std::string> found =
      read_parameters(value, place, [&](ParameterVisitor& p) { part.parameters(p); }, {});
  problems.insert(problems.end(), found.begin(), found.end());
}

/// Throws UserError with one problem a line.
void throw_problems(const std::vector<std::string>& problems);

}  // namespace kvarena::cost_model
