#include "metrics/algorithms/python_json.h"

#include <algorithm>

namespace kvarena::metrics {

using nlohmann::json;

bool python_equal(const json& a, const json& b) {
  const auto numeric = [](const json& v) { return v.is_number() || v.is_boolean(); };
  if (numeric(a) && numeric(b)) {
    const auto number = [](const json& v) { return v.is_boolean() ? json(v.get<bool>() ? 1 : 0) : v; };
    return number(a) == number(b);
  }
  if (a.is_array() && b.is_array()) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), python_equal);
  }
  if (a.is_object() && b.is_object()) {
    return a.size() == b.size() && std::all_of(a.items().begin(), a.items().end(), [&](const auto& item) {
             const auto found = b.find(item.key());
             return found != b.end() && python_equal(item.value(), *found);
           });
  }
  return a == b;
}

std::string python_type_name(const json& value) {
  if (value.is_string()) return "str";
  if (value.is_boolean()) return "bool";
  if (value.is_number_integer()) return "int";
  if (value.is_number()) return "float";
  if (value.is_array()) return "list";
  if (value.is_object()) return "dict";
  return "NoneType";
}

}  // namespace kvarena::metrics
