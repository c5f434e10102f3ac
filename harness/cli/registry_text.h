#pragma once
// Registered components and their parameters as text and as JSON, for `methods`, `workloads` and `metrics`.

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/core/page.h"
#include "harness/core/parameters.h"
#include "harness/method/registry.h"

namespace kvarena::cli {

/// [{"name", "type", "default", "min", "max", "above", "choices", "doc", "required"}]; what is not set is left out.
[[nodiscard]] nlohmann::json parameters_json(const std::vector<ParameterInfo>& parameters);

/// Rows of each parameter's name, and its meaning with type, range and default.
[[nodiscard]] Rows parameter_rows(const std::vector<ParameterInfo>& parameters);

/// Rows of `facts`; pairs with an empty value are left out.
[[nodiscard]] Rows fact_rows(const std::vector<std::pair<std::string, std::string>>& facts);

/// Families in the order in which they are listed.
inline constexpr std::array kFamilies{Family::reference, Family::compression, Family::retrieval,   Family::prefill,
                                      Family::reuse,     Family::eviction,    Family::verification};

/// Names of the observations that the method asks the backend for, with its default settings.
[[nodiscard]] std::vector<std::string> needs_of(const MethodEntry& entry);

/// Settings with which the method can be made: what is required, and a budget where there is one. Null when that does
/// not make a valid method.
[[nodiscard]] nlohmann::json example_settings(const MethodEntry& entry);

/// The short form of settings (method_spec.h): "pick:keep=0.25".
[[nodiscard]] std::string short_form(const nlohmann::json& settings);

/// Settings as a person writes them in a config: {"name": "pick", "keep": 0.25}, the name first.
[[nodiscard]] std::string config_form(const nlohmann::json& settings);

/// A method for help texts: the first of the registry that has a budget.
[[nodiscard]] std::string example_method();

}  // namespace kvarena::cli
