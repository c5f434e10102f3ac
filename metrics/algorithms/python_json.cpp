#include "metrics/algorithms/python_json.h"

#include <algorithm>
#include <array>
#include <limits>

namespace kvarena::metrics {

using nlohmann::json;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Word {
  std::string_view text;
  double value;
};

constexpr std::array<Word, 3> kNumbersOfPython = {
    {{"NaN", std::numeric_limits<double>::quiet_NaN()}, {"-Infinity", -kInfinity}, {"Infinity", kInfinity}}};

// The text with null in the place of such numbers, and what each null of it stands for.
struct PlainJson {
  std::string text;
  std::vector<json> nulls;
};

PlainJson plain_json(std::string_view text) {
  PlainJson plain;
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    const auto* number = std::find_if(kNumbersOfPython.begin(), kNumbersOfPython.end(),
                                      [&](const Word& word) { return !in_string && rest.starts_with(word.text); });
    if (number != kNumbersOfPython.end()) {
      plain.text += "null";
      plain.nulls.emplace_back(number->value);
      i += number->text.size();
      continue;
    }
    if (!in_string && rest.starts_with("null")) plain.nulls.emplace_back();
    const size_t length = in_string && text[i] == '\\' ? 2 : 1;
    in_string ^= length == 1 && text[i] == '"';
    plain.text += rest.substr(0, length);
    i += length;
  }
  return plain;
}

}  // namespace

json parse_python_json(std::string_view text) {
  if (text.find("NaN") == std::string_view::npos && text.find("Infinity") == std::string_view::npos) {
    return json::parse(text);
  }
  const PlainJson plain = plain_json(text);
  size_t met = 0;
  return json::parse(plain.text, [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::value && parsed.is_null()) parsed = plain.nulls.at(met++);
    return true;
  });
}

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
