#pragma once
// JSON values compared and named as Python sees them after json.loads.

#include <nlohmann/json.hpp>
#include <string>

namespace kvarena::metrics {

/// `a == b` in Python: numbers by value across int, float and bool (True == 1 == 1.0); a string never equals a number;
/// objects without regard to order.
[[nodiscard]] bool python_equal(const nlohmann::json& a, const nlohmann::json& b);

/// "str", "int", "float", "bool", "list", "dict" or "NoneType".
[[nodiscard]] std::string python_type_name(const nlohmann::json& value);

}  // namespace kvarena::metrics
