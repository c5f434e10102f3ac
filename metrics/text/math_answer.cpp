#include <fmt/format.h>

#include "metrics/algorithms/math_answers.h"
#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

// From `begin` to the brace that closes the first one that opens there; nothing where none does.
std::string_view closed_from(std::string_view text, size_t begin) {
  int64_t open = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    open += text[i] == '{' ? 1 : 0;
    if (text[i] == '}' && --open == 0) return text.substr(begin, i + 1 - begin);
  }
  return {};
}

// Content of the last \boxed{...}, or all that follows the last "\boxed " up to a dollar sign.
std::optional<std::string_view> boxed(std::string_view text) {
  constexpr std::string_view kBox = "\\boxed";
  if (const size_t spaced = text.rfind("\\boxed "); spaced != std::string_view::npos) {
    const std::string_view rest = text.substr(spaced + kBox.size() + 1);
    return rest.substr(0, rest.find('$'));
  }
  const size_t at = text.rfind(kBox);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view box = closed_from(text, at);
  if (!box.starts_with("\\boxed{")) return std::nullopt;
  return box.substr(kBox.size() + 1, box.size() - kBox.size() - 2);
}

// The boxed answer; without one, the text between the first and the last dollar sign, or everything.
std::string_view answer_of(std::string_view response) {
  if (const auto box = boxed(response)) return *box;
  const size_t first = response.find('$');
  const size_t last = response.rfind('$');
  return first == last ? response : response.substr(first + 1, last - first - 1);
}

MetricScore math_answer(const MetricInput& input) {
  const std::string_view answer = answer_of(input.prediction);
  MetricScore score{.notes = {{"answer", std::string(answer)}}};
  score.values["boxed"] = boxed(input.prediction) ? 1 : 0;
  for (const std::string& gold : input.references) {
    if (math_answers_equal(answer, gold)) score.score = 1;
  }
  return score;
}

}  // namespace

KVARENA_METRIC({.id = "math_answer",
                .title = "Mathematical answer",
                .summary = "1 when the answer in the last \\boxed{} (without one between the first and last $, else "
                           "the whole text) equals a reference by the grader of MATH-500: equal in a normal form, or, "
                           "element by element of a tuple, in value; fractions must be reduced, integers written as "
                           "such. `boxed`: whether there was a box.",
                .source = "openai/prm800k @7ecc7947 prm800k/grading; extraction as task aime of lm-evaluation-harness",
                .score = math_answer});

}  // namespace kvarena::metrics
