#pragma once
// JSON read as Python's json.loads reads it, and its values compared and named as Python sees them.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kvarena::metrics {

/// json.loads: JSON, and the numbers NaN, Infinity and -Infinity. Throws nlohmann::json::parse_error.
[[nodiscard]] nlohmann::json parse_python_json(std::string_view text);

/// `a == b` in Python: numbers by value across int, float and bool (True == 1 == 1.0); a string never equals a number;
/// objects without regard to order.
[[nodiscard]] bool python_equal(const nlohmann::json& a, const nlohmann::json& b);

/// "str", "int", "float", "bool", "list", "dict" or "NoneType".
[[nodiscard]] std::string python_type_name(const nlohmann::json& value);

}  // namespace kvarena::metrics
