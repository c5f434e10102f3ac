// The normal form of answers of MATH: math_equivalence.py of Hendrycks et al. as openai/prm800k has it.

#include <fmt/format.h>

#include "metrics/algorithms/math_answers.h"
#include "metrics/algorithms/regex.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

// Nothing: the official code throws an exception there.
using Form = std::optional<std::string>;

// The first character, all of its bytes; `text` is not empty.
std::string_view first_character(std::string_view text) {
  size_t end = 0;
  next_code_point(text, end);
  return text.substr(0, end);
}

// \frac12 and \frac1{2} to \frac{1}{2}.
Form brace_fractions(const std::string& text) {
  const auto pieces = split_on(text, "\\frac");
  std::string out = pieces[0];
  for (size_t i = 1; i < pieces.size(); ++i) {
    const std::string_view piece = pieces[i];
    if (piece.empty()) return std::nullopt;
    out += "\\frac";
    const std::string_view above = first_character(piece);
    if (above == "{") {
      out += piece;
      continue;
    }
    if (above.size() == piece.size()) return text;
    const std::string_view below = first_character(piece.substr(above.size()));
    const std::string_view rest = piece.substr(above.size() + below.size());
    out += below == "{" ? fmt::format("{{{}}}{{{}", above, rest) : fmt::format("{{{}}}{{{}}}{}", above, below, rest);
  }
  return out;
}

Form brace_roots(const std::string& text) {
  const auto pieces = split_on(text, "\\sqrt");
  std::string out = pieces[0];
  for (size_t i = 1; i < pieces.size(); ++i) {
    const std::string_view piece = pieces[i];
    if (piece.empty()) return std::nullopt;
    const std::string_view under = first_character(piece);
    out += under == "{" ? fmt::format("\\sqrt{}", piece)
                        : fmt::format("\\sqrt{{{}}}{}", under, piece.substr(under.size()));
  }
  return out;
}

// "3/4", both as Python writes integers, to \frac{3}{4}.
std::string fraction_of_integers(const std::string& text) {
  static const Regex kFraction(R"(^(0|-?[1-9][0-9]*)/(0|-?[1-9][0-9]*)\z)");
  const RegexMatch match = kFraction.search(text);
  return match.empty() ? text : fmt::format("\\frac{{{}}}{{{}}}", match[1], match[2]);
}

// "x=5" to "5".
std::string without_name(const std::string& text) {
  const auto sides = split_on(text, "=");
  return sides.size() == 2 && decode_utf8(sides[0]).size() <= 2 ? sides[1] : text;
}

std::string without_marks(std::string_view text) {
  std::string out = replace_all(text, "\n", "");
  for (const auto& [from, to] : {std::pair{"\\!", ""}, std::pair{"\\\\", "\\"}, std::pair{"tfrac", "frac"},
                                 std::pair{"dfrac", "frac"}, std::pair{"\\left", ""}, std::pair{"\\right", ""},
                                 std::pair{"^{\\circ}", ""}, std::pair{"^\\circ", ""}, std::pair{"\\$", ""}}) {
    out = replace_all(out, from, to);
  }
  return out;
}

Form stripped(std::string_view text) {
  std::string out = without_marks(text);
  const auto parts = split_on(out, "\\text{ ");
  if (parts.size() > 2) return std::nullopt;
  out = replace_all(replace_all(replace_all(parts[0], "\\%", ""), " .", " 0."), "{.", "{0.");
  if (out.empty()) return out;
  if (out.front() == '.') out = fmt::format("0{}", out);
  const Form rooted = brace_roots(without_name(out));
  const Form form = rooted ? brace_fractions(replace_all(*rooted, " ", "")) : std::nullopt;
  if (!form) return std::nullopt;
  return fraction_of_integers(*form == "0.5" ? "\\frac{1}{2}" : *form);
}

}  // namespace

std::string hendrycks_form(std::string_view answer) {
  static const Regex kText(R"(^\\text\{(.+?)\}$)");
  std::string_view text = strip(answer);
  if (const RegexMatch match = kText.search(text); !match.empty()) text = strip(match[1]);
  return stripped(text).value_or(std::string(text));
}

}  // namespace kvarena::metrics
