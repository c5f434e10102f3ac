#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "metrics/algorithms/regex.h"
#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

std::vector<std::string> answers_in(std::string_view completion) {
  static const Regex kAnswer(R"((?<=:\n)(.*?)(?=\n\n|$))", Regex::Dot::matches_all);
  const std::string text = replace_all(completion, "Answer_", "\n");
  std::vector<std::string> answers;
  for (const RegexMatch& match : kAnswer.find_all(text)) answers.emplace_back(strip(match[1]));
  return answers;
}

std::string last_number(std::string_view text) {
  static const Regex kNumber(R"(\d*\.?\d+)");
  const auto matches = kNumber.find_all(text);
  return matches.empty() ? std::string() : std::string(matches.back()[0]);
}

// The official scorer sees the label of the question before the answer, so an answer without digits is compared with
// it.
bool is_right(size_t index, std::string_view answer, std::string_view gold) {
  return last_number(replace_all(fmt::format("Q_{}\n{}", index, answer), ",", "")) == last_number(gold);
}

struct Result {
  std::vector<std::string> answers;
  std::vector<bool> right;  // of the questions that got an answer
  size_t asked = 0;
  [[nodiscard]] double correct() const { return static_cast<double>(std::count(right.begin(), right.end(), true)); }
};

Result check(std::string_view completion, std::span<const std::string> gold) {
  Result result{answers_in(completion), {}, gold.size()};
  for (size_t i = 0; i < std::min(gold.size(), result.answers.size()); ++i) {
    result.right.push_back(is_right(i, result.answers[i], gold[i]));
  }
  return result;
}

double over(double part, size_t whole) { return whole == 0 ? 0.0 : part / static_cast<double>(whole); }

MetricScore score_gsm8k_long(const MetricInput& input) {
  const Result result = check(input.prediction, input.references);
  MetricScore score;
  score.score = over(result.correct(), result.asked);
  score.values = {{"official_ratio", over(result.correct(), result.right.size())},
                  {"answered", static_cast<double>(result.right.size())},
                  {"asked", static_cast<double>(result.asked)},
                  {"all_right", result.asked > 0 && result.correct() == static_cast<double>(result.asked)}};
  return score;
}

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const auto gold = row.at("gold_answers").get<std::vector<std::string>>();
  const Result result = check(row.at("completion").get_ref<const std::string&>(), gold);
  nlohmann::json expected = {{"extracted_answers", result.answers}};
  if (result.right.empty()) {  // the official code fails on a completion without answers
    for (const char* key : {"num_q", "correct", "ratio", "per_question"}) expected[key] = nullptr;
  } else {
    expected["num_q"] = result.right.size();
    expected["correct"] = result.correct();
    expected["ratio"] = over(result.correct(), result.right.size());
    expected["per_question"] = result.right;
  }
  return {{"expected", std::move(expected)},
          {"expected_ratio_over_all_questions", over(result.correct(), result.asked)}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "gsm8k_long",
     .title = "GSM8K-Long, share of chained problems right",
     .summary = "Of K questions asked in one prompt, the share answered with the gold number (references: the K "
                "gold answers in order). values: the official ratio over answered questions, and all_right.",
     .source = "Dominic789654/LongGenBench @98458646 longgenbench_GSM8K_openai.py",
     .score = score_gsm8k_long,
     .vectors = {{"longgenbench_gsm8k", recompute}}});

}  // namespace kvarena::metrics
