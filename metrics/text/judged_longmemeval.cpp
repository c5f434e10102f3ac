#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/judge_prompt.h"
#include "metrics/registry.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

// Texts of src/evaluation/evaluate_qa.py.
constexpr const char* kContains =
    "I will give you a question, a correct answer, and a response from a model. Please answer yes if the response "
    "contains the correct answer. Otherwise, answer no. ";
constexpr const char* kEquivalent =
    "If the response is equivalent to the correct answer or contains all the intermediate steps to get the correct "
    "answer, you should also answer yes. If the response only contains a subset of the information required by the "
    "answer, answer no. ";
constexpr const char* kOffByOne =
    "In addition, do not penalize off-by-one errors for the number of days. If the question asks for the number of "
    "days/weeks/months, etc., and the model makes off-by-one errors (e.g., predicting 19 days when the answer is 18), "
    "the model's response is still correct. ";
constexpr const char* kUpdated =
    "If the response contains some previous information along with an updated answer, the response should be "
    "considered as correct as long as the updated answer is the required answer.";
constexpr const char* kRubric =
    "I will give you a question, a rubric for desired personalized response, and a response from a model. Please "
    "answer yes if the response satisfies the desired response. Otherwise, answer no. The model does not need to "
    "reflect all the points in the rubric. The response is correct as long as it recalls and utilizes the user's "
    "personal information correctly.";
constexpr const char* kUnanswerable =
    "I will give you an unanswerable question, an explanation, and a response from a model. Please answer yes if the "
    "model correctly identifies the question as unanswerable. The model could say that the information is incomplete, "
    "or some other information is given but the asked information is not.";

/// How answers to questions of one type are judged, and what the truth beside the question is called.
struct Rule {
  std::string text;
  const char* truth = "Correct Answer";
  const char* asked = "Is the model response correct?";
};

Rule rule_of(const std::string& type, bool abstention) {
  if (abstention)
    return {kUnanswerable, "Explanation", "Does the model correctly identify the question as unanswerable?"};
  if (type == "single-session-preference") return {kRubric, "Rubric"};
  if (type == "knowledge-update") return {fmt::format("{}{}", kContains, kUpdated)};
  return {fmt::format("{}{}{}", kContains, kEquivalent, type == "temporal-reasoning" ? kOffByOne : "")};
}

/// The prompt before the response, and behind it.
JudgeParts parts_of(const nlohmann::json& row) {
  const auto text = [&](const char* name) {
    const auto found = row.find(name);
    if (found != row.end() && found->is_string()) return found->get<std::string>();
    fail({.place = fmt::format("metric \"judged_longmemeval\": {}", name),
          .found = "none in the row",
          .expected = "question_id, question_type, question and answer of a row of LongMemEval"});
  };
  const Rule rule = rule_of(text("question_type"), contains(text("question_id"), "_abs"));
  return {fmt::format("{}\n\nQuestion: {}\n\n{}: {}", rule.text, text("question"), rule.truth, text("answer")),
          rule.asked};
}

constexpr JudgeQuestion kQuestion = {
    .text = "$INST$\n\nModel Response: $RESPONSE$\n\n$REFERENCE$ Answer yes or no only.",
    .system = "",
    .temperature = 0,
    .request = "",
    .reference = "",
    .parts = parts_of,
    .max_tokens = 10};

// The prediction is the judge's output about a response, not the response.
MetricScore score(const MetricInput& input) {
  const bool said = !strip(input.prediction).empty();
  return {contains(lower(input.prediction), "yes") ? 1.0 : 0.0, {{"parsed", said ? 1.0 : 0.0}}, {}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "judged_longmemeval",
     .title = "Judged LongMemEval accuracy",
     .summary =
         "1 where the judge's text, which is the prediction, holds a yes. The judge is asked in the words of the "
         "question's type: whether the answer is in the response, for temporal reasoning give or take a day, for "
         "an update whatever older answer is beside it, whether a rubric of preferences is met, or, of ids with "
         "_abs, whether the response says that the question cannot be answered. values.parsed is 0 for an empty text, "
         "as of a judge "
         "that thinks for its 10 tokens (the official program takes it for a no). Name the judge beside the score; "
         "`longmemeval_match` needs none.",
     .source = "xiaowu0162/LongMemEval @9e0b455 src/evaluation/evaluate_qa.py",
     .score = score,
     .needs_references = false,
     .judge = &kQuestion});

}  // namespace kvarena::metrics
