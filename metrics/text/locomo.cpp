#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/algorithms/porter.h"
#include "metrics/registry.h"
#include "metrics/text/qa_f1.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

constexpr int64_t kMultiHop = 1, kOpenDomain = 3, kAdversarial = 5;

std::vector<std::string> stems(std::string_view text) {
  constexpr std::string_view kBlanked[] = {"a", "an", "the", "and"};
  std::vector<std::string> words = normalized_words(text, kBlanked);
  for (std::string& word : words) word = porter_stem(std::move(word));
  return words;
}

double f1(std::string_view prediction, std::string_view answer) { return bag_f1(stems(prediction), stems(answer)).f; }

std::vector<std::string_view> parts(std::string_view text) {
  std::vector<std::string_view> found;
  for (size_t comma = text.find(','); comma != text.npos; comma = text.find(',')) {
    found.push_back(text.substr(0, comma));
    text.remove_prefix(comma + 1);
  }
  found.push_back(text);
  return found;
}

/// Mean over the answer's parts between commas of the best part of the prediction.
double f1_of_parts(std::string_view prediction, std::string_view answer) {
  const std::vector<std::string_view> predicted = parts(prediction), wanted = parts(answer);
  double sum = 0;
  for (const std::string_view want : wanted) {
    double best = 0;
    for (const std::string_view part : predicted) best = std::max(best, f1(part, want));
    sum += best;
  }
  return sum / static_cast<double>(wanted.size());
}

/// The option that a letter, or one in parentheses, stands for; other answers as they are, in lower case.
std::string chosen(std::string_view prediction, const nlohmann::json& options) {
  const std::string answer = lower(strip(prediction));
  if (answer.size() != 1 && answer.size() != 3) return answer;
  const bool first = answer == (answer.size() == 1 ? "a" : "(a)");
  return lower(options.at(first ? "a" : "b").get<std::string>());
}

MetricScore score(const MetricInput& input) {
  if (!input.extras.contains("category") || input.references.empty()) {
    fail({.place = "metric locomo", .found = "a sample without a category or an answer", .expected = "both"});
  }
  const auto category = input.extras["category"].get<int64_t>();
  std::string_view answer = input.references.front();
  if (category == kAdversarial) {
    const std::string said = chosen(input.prediction, input.extras.at("options"));
    const bool right = said.find("no information available") != said.npos || said.find("not mentioned") != said.npos;
    return {right ? 1.0 : 0.0, {}, {}};
  }
  if (category == kMultiHop) return {f1_of_parts(input.prediction, answer), {}, {}};
  if (category == kOpenDomain) answer = answer.substr(0, answer.find(';'));
  return {f1(input.prediction, answer), {}, {}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "locomo",
     .title = "LoCoMo F1",
     .summary = "F1 of the bags of Porter stems after lower-casing and deleting punctuation and the words a, "
                "an, the, and; of answers from several days the mean over the answer's parts between "
                "commas; of what was never said 1 where the answer, or the option it names, says so. "
                "`category` in extras, and `options` of the last.",
     .source = "snap-research/locomo @3eb6f2c task_eval/evaluation.py, gpt_utils.py",
     .score = score});

}  // namespace kvarena::metrics
