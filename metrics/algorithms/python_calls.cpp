#include "metrics/algorithms/python_calls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "metrics/algorithms/python_ast.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

using python::Node;
using Type = PythonValue::Type;

struct Unresolvable {};  // where BFCL's resolver raises

bool is_number(const PythonValue& v) {
  return v.type == Type::boolean || v.type == Type::integer || v.type == Type::real;
}
bool is_small_int(const PythonValue& v) { return v.type == Type::boolean || (v.type == Type::integer && !v.big); }
int64_t int_of(const PythonValue& v) { return v.type == Type::boolean ? v.boolean : v.integer; }
double real_of(const PythonValue& v) { return v.type == Type::real || v.big ? v.real : static_cast<double>(int_of(v)); }

PythonValue integer(int64_t value) { return {.type = Type::integer, .integer = value}; }
PythonValue real(double value) { return {.type = Type::real, .real = value}; }
PythonValue text(std::string value) { return {.type = Type::string, .string = std::move(value)}; }
PythonValue big_integer(double value) { return {.type = Type::integer, .real = value, .big = true}; }

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

PythonValue integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) {
      return big_integer(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
    }
    if (result == 0 || (base == 1)) break;
    if (base == -1) return integer(exponent % 2 == 0 ? 1 : -1);
  }
  return integer(result);
}

PythonValue shifted_left(int64_t a, int64_t bits) {
  if (a == 0) return integer(0);
  if (a == -1 && bits == 63) return integer(INT64_MIN);
  int64_t result = 0;
  if (bits < 63 && !__builtin_mul_overflow(a, int64_t{1} << bits, &result)) return integer(result);
  return big_integer(std::ldexp(static_cast<double>(a), static_cast<int>(std::min<int64_t>(bits, 2000))));
}

PythonValue integer_operation(const std::string& op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") return __builtin_add_overflow(a, b, &result) ? big_integer(double(a) + double(b)) : integer(result);
  if (op == "-") return __builtin_sub_overflow(a, b, &result) ? big_integer(double(a) - double(b)) : integer(result);
  if (op == "*") return __builtin_mul_overflow(a, b, &result) ? big_integer(double(a) * double(b)) : integer(result);
  if (op == "**" && b >= 0) return integer_power(a, b);
  if (op == "|") return integer(a | b);
  if (op == "^") return integer(a ^ b);
  if (op == "&") return integer(a & b);
  if (op == "<<" && b >= 0) return shifted_left(a, b);
  if (op == ">>" && b >= 0) return integer(a >> std::min<int64_t>(b, 63));
  const bool divides = op == "//" || op == "%";
  if (!divides || b == 0 || (a == INT64_MIN && b == -1)) throw Unresolvable{};
  return integer(op == "//" ? floor_divide(a, b) : a - floor_divide(a, b) * b);
}

PythonValue real_operation(const std::string& op, double a, double b) {
  if (op == "+") return real(a + b);
  if (op == "-") return real(a - b);
  if (op == "*") return real(a * b);
  if (op == "**" && !(a == 0 && b < 0) && !(a < 0 && b != std::floor(b))) return real(std::pow(a, b));
  if (b == 0) throw Unresolvable{};
  if (op == "/") return real(a / b);
  if (op == "//") return real(std::floor(a / b));
  if (op == "%") return real(a - b * std::floor(a / b));
  throw Unresolvable{};
}

std::string repeated(const std::string& part, int64_t times) {
  constexpr int64_t kLongest = 1 << 20;  // a model can write 'x' * 10**9
  if (times > 0 && static_cast<int64_t>(part.size()) > kLongest / times) throw Unresolvable{};
  std::string out;
  for (int64_t i = 0; i < times; ++i) out += part;
  return out;
}

// Only constants have a value here: a name would be a NameError in Python.
PythonValue evaluate(const Node& node) {
  if (node.kind == Node::Kind::constant) return node.value;
  if (node.kind == Node::Kind::unary && node.text.size() == 1 && node.text != "~") {
    const PythonValue v = evaluate(node.children[0]);
    if (!is_number(v)) throw Unresolvable{};
    if (node.text == "+") return is_small_int(v) ? integer(int_of(v)) : v;
    return is_small_int(v) ? integer_operation("-", 0, int_of(v))
                           : PythonValue{.type = v.type, .real = -v.real, .big = v.big};
  }
  if (node.kind != Node::Kind::binary) throw Unresolvable{};
  const PythonValue a = evaluate(node.children[0]);
  const PythonValue b = evaluate(node.children[1]);
  if (a.type == Type::string && b.type == Type::string && node.text == "+") return text(a.string + b.string);
  if (a.type == Type::string && is_small_int(b) && node.text == "*") return text(repeated(a.string, int_of(b)));
  if (!is_number(a) || !is_number(b)) throw Unresolvable{};
  const bool exact = is_small_int(a) && is_small_int(b) && node.text != "/" && !(node.text == "**" && int_of(b) < 0);
  return exact ? integer_operation(node.text, int_of(a), int_of(b)) : real_operation(node.text, real_of(a), real_of(b));
}

PythonCall resolve_call(const Node& node);
PythonValue resolve(const Node& node);

std::vector<PythonValue> resolve_all(const std::vector<Node>& nodes) {
  std::vector<PythonValue> values;
  for (const Node& node : nodes) values.push_back(resolve(node));
  return values;
}

PythonValue resolve_dict(const Node& node) {
  PythonValue dict{.type = Type::dict};
  for (size_t i = 0; i < node.children.size(); i += 2) {
    PythonValue key = resolve(node.children[i]);
    if (key.type == Type::list || key.type == Type::dict) throw Unresolvable{};  // not hashable
    PythonValue value = resolve(node.children[i + 1]);
    const auto same = std::find_if(dict.entries.begin(), dict.entries.end(),
                                   [&](const auto& entry) { return python_equal(entry.key, key); });
    if (same != dict.entries.end()) {
      same->value = std::move(value);
    } else {
      dict.entries.push_back({std::move(key), std::move(value)});
    }
  }
  return dict;
}

// BFCL negates the operand whatever the operator is; an operand that is no constant raises.
PythonValue resolve_unary(const Node& node) {
  if (node.children[0].kind != Node::Kind::constant) throw Unresolvable{};
  Node minus = node;
  minus.text = "-";
  return evaluate(minus);
}

PythonValue resolve(const Node& node) {
  switch (node.kind) {
    case Node::Kind::constant: return node.value;
    case Node::Kind::ellipsis: return text("...");
    case Node::Kind::name: return text(node.text);
    case Node::Kind::attribute: throw Unresolvable{};
    case Node::Kind::list: return {.type = Type::list, .items = resolve_all(node.children)};
    case Node::Kind::tuple: return {.type = Type::tuple, .items = resolve_all(node.children)};
    case Node::Kind::dict: return resolve_dict(node);
    case Node::Kind::unary: return resolve_unary(node);
    case Node::Kind::binary: return evaluate(node);
    case Node::Kind::subscript: return text(python::unparse(node));
    case Node::Kind::call: break;
  }
  if (node.key_names.empty()) return text(python::unparse(node));
  PythonCall call = resolve_call(node);
  PythonValue arguments{.type = Type::dict};
  for (auto& [name, value] : call.arguments) arguments.entries.push_back({text(name), std::move(value)});
  PythonValue dict{.type = Type::dict};
  dict.entries.push_back({text(std::move(call.name)), std::move(arguments)});
  return dict;
}

PythonCall resolve_call(const Node& node) {
  std::vector<std::string> parts;
  const Node* function = &node.children[0];
  for (; function->kind == Node::Kind::attribute; function = &function->children[0]) parts.push_back(function->text);
  if (function->kind == Node::Kind::name) parts.push_back(function->text);
  std::reverse(parts.begin(), parts.end());
  PythonCall call{fmt::format("{}", fmt::join(parts, ".")), {}};
  for (size_t i = 0; i < node.key_names.size(); ++i) {
    PythonValue value = resolve(node.key_values[i]);
    const auto same = std::find_if(call.arguments.begin(), call.arguments.end(),
                                   [&](const auto& argument) { return argument.first == node.key_names[i]; });
    if (same != call.arguments.end()) {
      same->second = std::move(value);
    } else {
      call.arguments.emplace_back(node.key_names[i], std::move(value));
    }
  }
  return call;
}

}  // namespace

std::optional<std::vector<PythonCall>> parse_python_calls(std::string_view answer) {
  std::string list(strip_any(answer, "`\n "));
  if (!list.starts_with('[')) list.insert(0, "[");
  if (!list.ends_with(']')) list += "]";
  const auto elements = python::parse_list(list);
  if (!elements) return std::nullopt;
  std::vector<PythonCall> calls;
  try {
    for (const Node& element : *elements) {
      if (element.kind != Node::Kind::call) return std::nullopt;
      calls.push_back(resolve_call(element));
    }
  } catch (const Unresolvable&) {
    return std::nullopt;
  }
  return calls;
}

nlohmann::json to_json(const PythonValue& value) {
  switch (value.type) {
    case Type::none: return nullptr;
    case Type::boolean: return value.boolean;
    case Type::integer: return value.big ? nlohmann::json(value.real) : nlohmann::json(value.integer);
    case Type::real: return value.real;
    case Type::string: return value.string;
    case Type::list:
    case Type::tuple: {
      nlohmann::json out = nlohmann::json::array();
      for (const PythonValue& item : value.items) out.push_back(to_json(item));
      return out;
    }
    case Type::dict: break;
  }
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, entry] : value.entries) {
    out[key.type == Type::string ? key.string : python::repr(key)] = to_json(entry);
  }
  return out;
}

PythonValue from_json(const nlohmann::json& value) {
  if (value.is_boolean()) return {.type = Type::boolean, .boolean = value.get<bool>()};
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return big_integer(value.get<double>());
  if (value.is_number_integer()) return integer(value.get<int64_t>());
  if (value.is_number()) return real(value.get<double>());
  if (value.is_string()) return text(value.get<std::string>());
  PythonValue out;
  if (value.is_array()) {
    out.type = Type::list;
    for (const auto& item : value) out.items.push_back(from_json(item));
  } else if (value.is_object()) {
    out.type = Type::dict;
    for (const auto& [key, item] : value.items()) out.entries.push_back({text(key), from_json(item)});
  }
  return out;
}

bool python_equal(const PythonValue& a, const PythonValue& b) {
  if (is_number(a) && is_number(b)) {
    return is_small_int(a) && is_small_int(b) ? int_of(a) == int_of(b) : real_of(a) == real_of(b);
  }
  if (a.type != b.type) return false;
  switch (a.type) {
    case Type::none: return true;
    case Type::string: return a.string == b.string;
    case Type::list:
    case Type::tuple:
      return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(),
                        [](const PythonValue& x, const PythonValue& y) { return python_equal(x, y); });
    case Type::dict:
      return a.entries.size() == b.entries.size() &&
             std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
               return std::any_of(b.entries.begin(), b.entries.end(), [&](const auto& other) {
                 return python_equal(entry.key, other.key) && python_equal(entry.value, other.value);
               });
             });
    case Type::boolean:
    case Type::integer:
    case Type::real: break;
  }
  return false;
}

}  // namespace kvarena::metrics
