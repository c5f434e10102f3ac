#include "metrics/algorithms/bfcl_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/unicode/code_points.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;
using Type = PythonValue::Type;
using Values = std::vector<PythonValue>;
using Error = std::optional<std::string>;  // nothing: valid

bool is_left_out_mark(const PythonValue& v) { return v.type == Type::string && v.string.empty(); }

// "" among the accepted values: the parameter may be left out.
bool may_be_left_out(const Values& accepted) { return std::any_of(accepted.begin(), accepted.end(), is_left_out_mark); }

bool among(const PythonValue& value, const Values& accepted) {
  return std::any_of(accepted.begin(), accepted.end(), [&](const auto& a) { return python_equal(value, a); });
}

// Blanks and ,./-_*^ deleted, lower case, single quotes made double.
std::string standardized(const std::string& text) {
  std::string kept = text;
  std::erase_if(kept, [](char c) { return std::string_view(" ,./-_*^").find(c) != std::string_view::npos; });
  kept = lower(kept);
  std::replace(kept.begin(), kept.end(), '\'', '"');
  return kept;
}

PythonValue standardized(PythonValue value) {
  if (value.type == Type::string) value.string = standardized(value.string);
  return value;
}

Values standardized(Values values) {
  for (PythonValue& v : values) v = standardized(std::move(v));
  return values;
}

// The Python type BFCL maps a description's type to; nothing for a type it does not know.
std::optional<Type> type_named(const std::string& name) {
  if (name == "string" || name == "any") return Type::string;
  if (name == "integer") return Type::integer;
  if (name == "float") return Type::real;
  if (name == "boolean") return Type::boolean;
  if (name == "array" || name == "tuple") return Type::list;
  if (name == "dict") return Type::dict;
  return std::nullopt;
}

struct TypeCheck {
  Error error;
  bool is_variable = false;  // a name was written where a value is expected; compared as it stands
};

std::optional<Type> type_of_first(const Values& accepted) {
  const auto first = std::find_if(accepted.begin(), accepted.end(), [](const auto& v) { return !is_left_out_mark(v); });
  return first == accepted.end() ? std::nullopt : std::optional(first->type);
}

TypeCheck check_type(const PythonValue& value, const Values& accepted, Type expected, std::optional<Type> nested);

// Whether the elements have the element type of some accepted list. An accepted value that is no list passes, as in
// BFCL.
bool elements_pass(const PythonValue& value, const Values& accepted, Type nested) {
  return std::any_of(accepted.begin(), accepted.end(), [&](const PythonValue& candidate) {
    return candidate.type != Type::list ||
           std::all_of(value.items.begin(), value.items.end(), [&](const PythonValue& item) {
             return !check_type(item, candidate.items, nested, std::nullopt).error;
           });
  });
}

TypeCheck check_type(const PythonValue& value, const Values& accepted, Type expected, std::optional<Type> nested) {
  const auto accepted_type = type_of_first(accepted);
  const bool is_variable = accepted_type && *accepted_type != expected;
  bool nested_failed = false;
  if (value.type == expected) {
    if (!nested || elements_pass(value, accepted, *nested)) return {std::nullopt, is_variable};
    nested_failed = true;
  }
  // A value of the accepted answers' type stands for a variable; BFCL keeps an earlier nested failure.
  if (accepted_type == value.type) return {nested_failed ? Error("type_error:nested") : std::nullopt, true};
  return {"type_error:simple", false};
}

Error check_string(const PythonValue& value, const Values& accepted) {
  if (value.type != Type::string) return "value_error:string";
  Values strings = accepted;
  std::erase_if(strings, [](const PythonValue& v) { return v.type != Type::string; });
  return among(standardized(value), standardized(strings)) ? std::nullopt : Error("value_error:string");
}

Error check_list(const PythonValue& value, const Values& accepted) {
  PythonValue given{.type = Type::list, .items = standardized(value.items)};
  Values lists;
  for (const PythonValue& candidate : accepted) {
    // BFCL walks over every accepted value, so "" becomes an empty list.
    if (candidate.type != Type::list && !is_left_out_mark(candidate)) continue;
    lists.push_back({.type = Type::list, .items = standardized(candidate.items)});
  }
  return among(given, lists) ? std::nullopt : Error("value_error:list/tuple");
}

const PythonValue* entry_of(const PythonValue& dict, const PythonValue& key) {
  for (const auto& [k, v] : dict.entries) {
    if (python_equal(k, key)) return &v;
  }
  return nullptr;
}

Error check_dict_against(const PythonValue& value, const PythonValue& candidate) {
  if (value.type != Type::dict || candidate.type != Type::dict) return "value_error:dict_value";
  Error error;
  for (const auto& [key, item] : value.entries) {
    const PythonValue* accepted = entry_of(candidate, key);
    if (accepted == nullptr) {
      error = "value_error:dict_key";
    } else if (!among(standardized(item), standardized(accepted->items))) {
      error = "value_error:dict_value";
    }
    if (error) break;
  }
  for (const auto& [key, accepted] : candidate.entries) {
    if (entry_of(value, key) == nullptr && !may_be_left_out(accepted.items)) return "value_error:dict_key";
  }
  return error;
}

Error check_dict(const PythonValue& value, const Values& accepted) {
  Error error = "dict_checker:unclear";
  for (const PythonValue& candidate : accepted) {
    if (is_left_out_mark(candidate)) continue;
    error = check_dict_against(value, candidate);
    if (!error) break;
  }
  return error;
}

Error check_list_of_dicts(const PythonValue& value, const Values& accepted) {
  Error error = "list_dict_checker:unclear";
  for (const PythonValue& candidate : accepted) {
    error = std::nullopt;
    if (candidate.items.size() != value.items.size()) error = "value_error:list_dict_count";
    for (size_t i = 0; !error && i < value.items.size(); ++i) error = check_dict(value.items[i], {candidate.items[i]});
    if (!error) break;
  }
  return error;
}

// One given argument.
Error check_argument(PythonValue value, const json& description, const Values& accepted) {
  const std::string type_name = description.value("type", "string");
  const auto expected = type_named(type_name);
  if (!expected) {
    fail({.place = "BFCL function description",
          .found = fmt::format("type \"{}\"", type_name),
          .expected = "string, integer, float, boolean, array, tuple, dict or any"});
  }
  std::optional<Type> nested;
  if (*expected == Type::list) nested = type_named(description.value("items", json::object()).value("type", "any"));
  if (type_name == "tuple" && value.type == Type::tuple) value.type = Type::list;
  if (type_name == "float" && value.type == Type::integer) {
    value = {.type = Type::real, .real = value.big ? value.real : static_cast<double>(value.integer)};
  }
  const TypeCheck type = check_type(value, accepted, *expected, nested);
  if (type.error) return type.error;
  if (!type.is_variable) {
    if (*expected == Type::dict) return check_dict(value, accepted);
    if (*expected == Type::list && nested == Type::dict) return check_list_of_dicts(value, accepted);
    if (*expected == Type::string) return check_string(value, accepted);
    if (*expected == Type::list) return check_list(value, accepted);
  }
  return among(value, accepted) ? std::nullopt : Error("value_error:others");
}

Values values_of(const json& list) {
  Values values;
  for (const json& value : list) values.push_back(from_json(value));
  return values;
}

// One call against one accepted answer {function: {parameter: [values]}}.
Error check_call(const json& description, const PythonCall& call, const json& answer) {
  if (call.name != description.at("name").get<std::string>()) return "simple_function_checker:wrong_func_name";
  const json& accepted = answer.begin().value();
  const json& parameters = description.at("parameters");
  const json& properties = parameters.at("properties");
  const auto given = [&](const std::string& name) {
    return std::any_of(call.arguments.begin(), call.arguments.end(), [&](const auto& a) { return a.first == name; });
  };
  for (const json& name : parameters.value("required", json::array())) {
    if (!given(name.get<std::string>())) return "simple_function_checker:missing_required";
  }
  for (const auto& [name, value] : call.arguments) {
    if (!properties.contains(name) || !accepted.contains(name)) return "simple_function_checker:unexpected_param";
    if (Error error = check_argument(value, properties[name], values_of(accepted[name]))) return error;
  }
  for (const auto& [name, values] : accepted.items()) {
    if (!given(name) && !may_be_left_out(values_of(values))) return "simple_function_checker:missing_optional";
  }
  return std::nullopt;
}

const json& description_of(const json& functions, const std::string& name) {
  for (const json& function : functions) {
    const auto* const its_name = function.at("name").get_ptr<const std::string*>();
    if (its_name != nullptr && *its_name == name) return function;
  }
  fail({.place = "BFCL entry",
        .found = fmt::format("an answer that calls \"{}\"", name),
        .expected = "a function of the entry's list"});
}

// Each accepted answer takes the first unused call that passes.
Error check_any_order(const json& functions, std::span<const PythonCall> calls, const json& ground_truth) {
  std::vector<bool> used(calls.size());
  for (const json& answer : ground_truth) {
    const json& description = description_of(functions, answer.begin().key());
    bool found = false;
    for (size_t i = 0; i < calls.size() && !found; ++i) {
      if (used[i] || check_call(description, calls[i], answer)) continue;
      used[i] = found = true;
    }
    if (!found) return "parallel_function_checker_no_order:cannot_find_match";
  }
  return std::nullopt;
}

}  // namespace

Error check_bfcl_calls(const json& functions, std::span<const PythonCall> calls, const json& ground_truth,
                       const std::string& category) {
  const json list = functions.is_array() ? functions : json::array({functions});
  const bool parallel = category.find("parallel") != std::string::npos;
  const bool multiple = category.find("multiple") != std::string::npos;
  const bool well_formed = ground_truth.is_array() && !ground_truth.empty() && !list.empty() &&
                           std::all_of(ground_truth.begin(), ground_truth.end(), [](const json& a) {
                             return a.is_object() && !a.empty() && a.begin()->is_object();
                           });
  if (!well_formed) {
    fail({.place = "BFCL entry",
          .found = ground_truth.dump().substr(0, 120),
          .expected = "functions, and a list of {function: {parameter: [accepted values]}}"});
  }
  if (calls.size() != (parallel || multiple ? ground_truth.size() : 1)) {
    return parallel   ? "parallel_function_checker_no_order:wrong_count"
           : multiple ? "multiple_function_checker:wrong_count"
                      : "simple_function_checker:wrong_count";
  }
  if (parallel) return check_any_order(list, calls, ground_truth);
  const json& answer = ground_truth[0];
  return check_call(multiple ? description_of(list, answer.begin().key()) : list[0], calls[0], answer);
}

}  // namespace kvarena::metrics
