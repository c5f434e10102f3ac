// Equality of mathematical answers: grader.py of openai/prm800k.

#include "metrics/algorithms/math_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <vector>

#include "metrics/algorithms/regex.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

// float(text), where that is a finite number.
std::optional<double> python_float(std::string_view text) {
  static const Regex kFloat(R"(^[-+]?([0-9]+(_[0-9]+)*\.?([0-9]+(_[0-9]+)*)?|\.[0-9]+(_[0-9]+)*)([eE][-+]?[0-9]+)?\z)");
  const std::string number(strip(text));
  if (kFloat.search(number).empty()) return std::nullopt;
  const double value = std::strtod(replace_all(number, "_", "").c_str(), nullptr);
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

bool nearly_integer(double value) { return std::abs(value - std::nearbyint(value)) <= 1e-7; }

std::string integer_text(double value) { return fmt::format("{:.0f}", value == 0 ? 0.0 : value); }

// 1,234,567 to 1234567; commas of tuples stay.
std::string without_thousands(std::string text) {
  static const Regex kThousands(R"((\d)(,)(\d\d\d)($|\D))");
  for (;;) {
    std::string next = kThousands.sub(
        text, [](const RegexMatch& match) { return fmt::format("{}{}{}", match[1], match[3], match[4]); });
    if (next == text) return text;
    text = std::move(next);
  }
}

bool is_integer(const std::string& text) {
  const auto value = python_float(without_thousands(text));
  return value && nearly_integer(*value);
}

std::string without_units(std::string text) {
  static const std::vector<Regex> kUnits = [] {
    std::vector<Regex> patterns;
    for (const char* unit : {"degree", "cm", "centimeter", "meter", "mile", "second", "minute", "hour", "day", "week",
                             "month", "year", "foot", "feet", "inch", "yard"}) {
      patterns.emplace_back(fmt::format(R"({}(es)?(s)? *(\^[0-9]+)?)", unit));
    }
    patterns.emplace_back(R"(\^ *\\circ)");
    return patterns;
  }();
  for (const Regex& unit : kUnits) {
    text = unit.sub(text, [](const RegexMatch&) { return ""; });
  }
  return text;
}

// LaTeX as a formula that sympy reads.
std::string formula_of(std::string text) {
  text = replace_all(replace_all(text, "\\tfrac", "\\frac"), "\\dfrac", "\\frac");
  text = latex_to_text(replace_all(text, "\\frac", " \\frac"));
  for (const auto& [from, to] : {std::pair{"√", "sqrt"}, std::pair{"π", "pi"}, std::pair{"∞", "inf"},
                                 std::pair{"∪", "U"}, std::pair{"·", "*"}, std::pair{"×", "*"}}) {
    text = replace_all(text, from, to);
  }
  return std::string(strip(text));
}

std::string without_words(std::string_view answer) {
  static const Regex kText(R"(^\\text\{(.+?)\}$)");
  const RegexMatch match = kText.search(answer);
  std::string text(match.empty() ? answer : match[1]);
  for (const auto& [from, to] : {std::pair{"\\%", "%"}, std::pair{"\\$", "$"}, std::pair{"$", ""}, std::pair{"%", ""},
                                 std::pair{" or ", " , "}, std::pair{" and ", " , "}, std::pair{"million", "*10^6"},
                                 std::pair{"billion", "*10^9"}, std::pair{"trillion", "*10^12"}}) {
    text = replace_all(text, from, to);
  }
  return without_units(std::move(text));
}

// The second normal form: a formula without spaces, in small letters.
std::string normal_form(std::string_view answer) {
  static const Regex kThinComma(R"(,\\! *)");
  static const Regex kMinus("- *");
  static const Regex kMixed("([0-9]) +([0-9])");
  std::string text = without_words(answer);
  if (text.size() > 1 && text.front() == '{' && text.back() == '}') text = text.substr(1, text.size() - 2);
  text = kThinComma.sub(text, [](const RegexMatch&) { return ""; });
  if (const auto value = python_float(text); value && nearly_integer(*value)) {
    text = integer_text(std::nearbyint(*value));
  }
  if (text.find('\\') != std::string::npos) text = formula_of(text);
  text = kMinus.sub(text, [](const RegexMatch&) { return "-"; });
  text = kMixed.sub(text, [](const RegexMatch& match) { return fmt::format("{}+{}", match[1], match[2]); });
  for (const char* mark : {" ", "{", "}"}) text = replace_all(text, mark, "");
  text = lower(text);
  if (!is_integer(text)) return text;
  const auto value = python_float(replace_all(text, ",", ""));
  return value ? integer_text(std::trunc(*value)) : text;
}

// The elements of a tuple or an interval, or the text itself.
std::vector<std::string> elements(const std::string& form) {
  constexpr std::string_view kBrackets = "()[]";
  const std::string text = without_thousands(form);
  if (text.empty()) return {};
  const bool tuple =
      text.size() > 2 && contains(kBrackets, text.substr(0, 1)) && contains(kBrackets, text.substr(text.size() - 1));
  if (!tuple || text.substr(1, text.size() - 2).find_first_of(kBrackets) != std::string::npos) return {text};
  std::vector<std::string> parts = split_on(std::string_view(text).substr(1, text.size() - 2), ",");
  for (std::string& part : parts) part = std::string(strip(part));
  return parts;
}

// The grader evaluates formulas with at most two letters and without long exponents.
bool evaluates(const std::string& formula) {
  static const Regex kExponents(R"(\^[0-9]+\^|\^[0-9][0-9]+|\^\{|\^\()");
  std::set<char32_t> letters;
  for (const char32_t c : decode_utf8(replace_all(replace_all(formula, "sqrt", ""), "frac", ""))) {
    if (is_word(c) && !is_decimal(c) && c != '_') letters.insert(c);
  }
  return letters.size() <= 2 && kExponents.search(formula).empty();
}

bool elements_equal(const std::string& answer, const std::string& gold) {
  static const Regex kFraction("^-?[0-9]+.?/0*[1-9][0-9]*.?$");
  // A fraction that is not reduced is wrong, and so is an integer that is not written as one.
  if (!kFraction.search(gold).empty() && !kFraction.search(answer).empty()) return gold == answer;
  if (is_integer(gold) != is_integer(answer)) return false;
  return evaluates(fmt::format("({})-({})", gold, answer)) && formulas_equal(gold, answer);
}

}  // namespace

bool math_answers_equal(std::string_view answer, std::string_view gold) {
  if (hendrycks_form(answer) == hendrycks_form(gold)) return true;
  const std::string form = normal_form(answer);
  const std::string gold_form = normal_form(gold);
  if (form == gold_form) return true;
  if (form.empty()) return false;
  const auto parts = elements(form);
  const auto gold_parts = elements(gold_form);
  if (gold_parts.size() > 1 && (gold_form.front() != form.front() || gold_form.back() != form.back())) return false;
  return std::ranges::equal(parts, gold_parts, elements_equal);
}

}  // namespace kvarena::metrics
