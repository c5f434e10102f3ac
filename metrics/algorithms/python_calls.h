#pragma once
// The part of Python's expression grammar that function-calling models are asked to write: a list of calls.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvarena::metrics {

struct PythonCall;
struct PythonEntry;

/// A value as Python's own types have it: tuples apart from lists, int apart from float and bool.
struct PythonValue {
  enum class Type { none, boolean, integer, real, string, list, tuple, dict };
  Type type = Type::none;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;  ///< of reals; of integers beyond 64 bits (`big`) the nearest double
  bool big = false;
  std::string string;
  std::vector<PythonValue> items;    ///< list, tuple
  std::vector<PythonEntry> entries;  ///< dict, in order of first appearance
};

struct PythonEntry {
  PythonValue key;
  PythonValue value;
};

/// name(key=value, ...); positional arguments are dropped, as BFCL's decoder does.
struct PythonCall {
  std::string name;                                            ///< dotted names joined
  std::vector<std::pair<std::string, PythonValue>> arguments;  ///< in order; of equal names the last value
};

/// BFCL's ast_parse for Python: `text` stripped of back quotes, newlines and blanks, brackets added where missing, must
/// be one expression whose list elements are calls. Values: constants (all string prefixes and escapes, implicit
/// concatenation; bytes, f-strings and \\N escapes are refused), lists, dicts, tuples, unary minus, arithmetic
/// (evaluated), bare names as strings, nested calls with keywords as dicts of one entry, other nested calls and
/// subscripts as source text. Nothing when Python's parser or BFCL's resolver would raise.
[[nodiscard]] std::optional<std::vector<PythonCall>> parse_python_calls(std::string_view text);

/// As json.dumps would write it: tuples become lists, dict keys strings.
[[nodiscard]] nlohmann::json to_json(const PythonValue& value);

/// From JSON, as json.loads gives it.
[[nodiscard]] PythonValue from_json(const nlohmann::json& value);

/// `a == b` in Python: numbers by value across bool, int and float; a tuple never equals a list.
[[nodiscard]] bool python_equal(const PythonValue& a, const PythonValue& b);

}  // namespace kvarena::metrics
