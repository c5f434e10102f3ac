#pragma once
// A catalogue of invented tool functions: eight domains, forty-eight functions. Each can be described as JSON, asked
// for in plain English, and called with arguments that the request names word for word.

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "datasets/draw.h"

namespace kvarena::datasets {

/// One parameter of a function. All parameters are required.
struct FunctionParameter {
  std::string_view name;    // "city"
  std::string_view type;    // "string" or "integer"
  std::string_view doc;     // "name of the city"
  std::string_view values;  // "a|b|c" to choose from, or "1..9"
};

/// A function that can be called.
struct FunctionSpec {
  std::string_view domain;
  std::string_view name;
  std::string_view doc;
  std::span<const FunctionParameter> parameters;
  std::string_view request;  // "What will the weather be in {city} on {day}?"
};

/// All functions, ordered by domain. Names are different.
[[nodiscard]] std::span<const FunctionSpec> function_catalogue();

/// A request in words and the call that answers it.
struct FunctionRequest {
  std::string text;
  std::string call;  // {"name": ..., "arguments": {...}} as JSON text, keys in this order
};

/// Fills the function's request with drawn arguments.
[[nodiscard]] FunctionRequest draw_request(const FunctionSpec& function, Draw& draw);

/// {"name", "description", "parameters": {"type": "object", "properties": {...}, "required": [...]}} as one line of
/// JSON, parameters in order of declaration.
[[nodiscard]] std::string function_schema(const FunctionSpec& function);

}  // namespace kvarena::datasets
