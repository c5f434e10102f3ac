#pragma once
// Equality of mathematical answers by the rule of MATH-500's own grader (openai/prm800k, prm800k/grading): two answers
// are equal when they are the same text in one of two normal forms, or element by element have one value.

#include <optional>
#include <string>
#include <string_view>

namespace kvarena::metrics {

/// Whether an answer equals the gold one: grade_answer() of the grader.
[[nodiscard]] bool math_answers_equal(std::string_view answer, std::string_view gold);

/// The normal form of MATH (Hendrycks et al. 2021, math_equivalence.py): units on the right, \left, \right, degrees,
/// percent signs and spaces go, \frac12 and 1/2 become \frac{1}{2}. A text that the official code fails on stays.
[[nodiscard]] std::string hendrycks_form(std::string_view answer);

/// LaTeX as plain text, as pylatexenc 2 gives it: \frac{a}{b} is a/b without brackets, \sqrt{a} is √(a), symbols are
/// those of Unicode; of macros that it does not know the arguments stay. What it fails on comes back as it is.
[[nodiscard]] std::string latex_to_text(std::string_view latex);

/// Whether a - b is 0 as sympy reads and simplifies it: rationals exactly, decimal numbers in double precision, and
/// others by their value, at several points where letters are left. False for what is no formula. What sympy cannot
/// simplify to 0 although it is, is equal here.
[[nodiscard]] bool formulas_equal(std::string_view a, std::string_view b);

}  // namespace kvarena::metrics
