#pragma once
// Syntax trees of the Python expressions that models write as calls. Internal to python_calls.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/algorithms/python_calls.h"

namespace kvarena::metrics::python {

struct Node {
  enum class Kind { constant, ellipsis, name, attribute, call, list, tuple, dict, unary, binary, subscript };
  Kind kind = Kind::constant;
  PythonValue value;           ///< constant
  std::string text;            ///< name, attribute's last part, operator
  std::vector<Node> children;  ///< operands, elements; dict: key, value, key, value; call: function, positionals
  std::vector<std::string> key_names;  ///< call: names of keyword arguments
  std::vector<Node> key_values;        ///< call: their values
};

/// The elements of one list display that fills `text`. Nothing when Python's parser would refuse it or when it uses
/// grammar no argument of a call can be resolved from (lambda, comparison, comprehension, set, starred dict ...).
[[nodiscard]] std::optional<std::vector<Node>> parse_list(std::string_view text);

/// Source text as ast.unparse writes it.
[[nodiscard]] std::string unparse(const Node& node);

/// repr() of a constant.
[[nodiscard]] std::string repr(const PythonValue& value);

}  // namespace kvarena::metrics::python
