#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

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
std::string labelled(size_t index, std::string_view answer) { return fmt::format("Q_{}\n{}", index, answer); }

bool is_right(std::string_view answer, std::string_view gold) {
  const std::string number = last_number(replace_all(answer, ",", ""));
  return !number.empty() && number == last_number(gold);
}

// Counts of the official scorer in the file that the official runner writes.
struct Transcript {
  size_t questions = 0;     // lines that begin with "Question:", in whatever text
  std::vector<bool> right;  // an answer and its gold answer, each time a question or the end follows
  [[nodiscard]] double correct() const { return static_cast<double>(std::count(right.begin(), right.end(), true)); }
  [[nodiscard]] double ratio() const { return correct() / static_cast<double>(questions); }
};

std::vector<std::string> lines_of_file(std::string_view text) {  // of any kind of newline
  return split_on(replace_all(replace_all(text, "\r\n", "\n"), "\r", "\n"), "\n");
}

// Nothing where the official code fails: no answers, or a gold answer without a number.
std::optional<Transcript> transcript_of(std::span<const std::string> questions, std::span<const std::string> answers,
                                        std::span<const std::string> gold_answers) {
  std::string text;
  for (size_t i = 0; i < std::min(answers.size(), gold_answers.size()); ++i) {
    text += fmt::format("Question: {}\nA_model:{}\nA_gold:\n{}\n\n", i < questions.size() ? questions[i] : "",
                        labelled(i, answers[i]), gold_answers[i]);
  }
  Transcript counts;
  std::string question, model, gold;
  std::string* open = &question;
  const auto compare = [&] {
    counts.right.push_back(is_right(model, gold));
    return !last_number(gold).empty();
  };
  for (const std::string& line : lines_of_file(text)) {
    if (line.starts_with("Question:")) {
      if (!model.empty() && !gold.empty() && !compare()) return std::nullopt;
      open = &question;
      ++counts.questions;
    } else if (line.starts_with("A_model:")) {
      (open = &model)->clear();
    } else if (line.starts_with("A_gold:")) {
      (open = &gold)->clear();
    }
    *open += line + "\n";
  }
  if (text.empty() || !compare()) return std::nullopt;
  return counts;
}

std::vector<std::string> texts_in(const nlohmann::json& object, const char* name) {
  return object.contains(name) ? object.at(name).get<std::vector<std::string>>() : std::vector<std::string>();
}

double over(double part, size_t whole) { return whole == 0 ? 0.0 : part / static_cast<double>(whole); }

MetricScore score_gsm8k_long(const MetricInput& input) {
  const auto answers = answers_in(input.prediction);
  const size_t answered = std::min(answers.size(), input.references.size());
  const size_t asked = input.references.size();
  size_t right = 0;
  for (size_t i = 0; i < answered; ++i) right += is_right(labelled(i, answers[i]), input.references[i]);
  const auto transcript = transcript_of(texts_in(input.extras, "questions"), answers, input.references);
  MetricScore score;
  score.score = over(static_cast<double>(right), asked);
  score.values = {{"official_ratio", transcript ? transcript->ratio() : 0.0},
                  {"answered", static_cast<double>(answered)},
                  {"asked", static_cast<double>(asked)},
                  {"all_right", asked > 0 && right == asked}};
  return score;
}

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const auto gold = row.at("gold_answers").get<std::vector<std::string>>();
  const auto answers = answers_in(row.at("completion").get_ref<const std::string&>());
  const auto transcript = transcript_of(texts_in(row, "questions"), answers, gold);
  nlohmann::json expected = {{"extracted_answers", answers}};
  for (const char* key : {"num_q", "correct", "ratio", "per_question"}) expected[key] = nullptr;
  if (transcript) {
    expected["num_q"] = transcript->questions;
    expected["correct"] = transcript->correct();
    expected["ratio"] = transcript->ratio();
    expected["per_question"] = transcript->right;
  }
  return {{"expected", std::move(expected)},
          {"expected_ratio_over_all_questions", transcript ? over(transcript->correct(), gold.size()) : 0.0}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "gsm8k_long",
     .title = "GSM8K-Long, share of chained problems right",
     .version = 2,
     .summary = "Of K questions asked in one prompt, the share answered with the gold number (references: the K "
                "gold answers in order). values: all_right, and the official ratio over answered questions, in which "
                "any line of any text that begins with \"Question:\" (extras.questions) counts as one.",
     .source = "Dominic789654/LongGenBench @98458646 longgenbench_GSM8K_openai.py",
     .score = score_gsm8k_long,
     .vectors = {{"longgenbench_gsm8k", recompute}}});

}  // namespace kvarena::metrics
