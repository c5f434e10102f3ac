#include "metrics/judge_prompt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "harness/core/error.h"

namespace kvarena::metrics {
namespace {

constexpr const char* kSixMarks =
    R"judge(You are an expert in evaluating text quality. Please evaluate the quality of an AI assistant's response to a user's writing request. Be as strict as possible.

You need to evaluate across the following six dimensions, with scores ranging from 1 to 5. The scoring criteria from 5 to 1 for each dimension are as follows:

1. Relevance: From content highly relevant and fully applicable to the user's request to completely irrelevant or inapplicable.

2. Accuracy: From content completely accurate with no factual errors or misleading information to content with numerous errors and highly misleading.

3. Coherence: From clear structure with smooth logical connections to disorganized structure with no coherence.

4. Clarity: From clear language, rich in detail, and easy to understand to confusing expression with minimal details.

5. Breadth and Depth: From both broad and deep content with a lot of information to seriously lacking breadth and depth with minimal information.

6. Reading Experience: From excellent reading experience, engaging and easy to understand content to very poor reading experience, boring and hard to understand content.

Please evaluate the quality of the following response to a user's request according to the above requirements.

<User Request>

$INST$

</User Request>

<Response>

$RESPONSE$

</Response>

Please evaluate the quality of the response. You must first provide a brief analysis of its quality, then give a comprehensive analysis with scores for each dimension. The output must strictly follow the JSON format: {"Analysis": ..., "Relevance": ..., "Accuracy": ..., "Coherence": ..., "Clarity": ..., "Breadth and Depth": ..., "Reading Experience": ...}. You do not need to consider whether the response meets the user's length requirements in your evaluation. Ensure that only one integer between 1 and 5 is output for each dimension score.)judge";

constexpr const char* kOneMark =
    R"judge([Instruction]
Please act as an impartial judge and evaluate the quality of the response provided by an AI assistant to the user question displayed below. For this evaluation, you should primarily consider the following criteria:
accuracy: 
                Score 1: The answer is completely unrelated to the reference.
                Score 3: The answer has minor relevance but does not align with the reference.
                Score 5: The answer has moderate relevance but contains inaccuracies.
                Score 7: The answer aligns with the reference but has minor omissions.
                Score 10: The answer is completely accurate and aligns perfectly with the reference.
                Only respond with a numberical score
[Ground truth]
$REFERENCE$
Begin your evaluation by providing a short explanation. Be as objective as possible. After providing your explanation, you must rate the response on a scale of 1 to 10 by strictly following this format: "[[rating]]", for example: "Rating: [[5]]".

[Question]
$INST$

[The Start of Assistant's Answer]
$RESPONSE$
[The End of Assistant's Answer])judge";

}  // namespace

const JudgeQuestion kQualityQuestion = {
    .text = kSixMarks, .system = "", .temperature = 0.5, .request = "instruction", .reference = ""};

const JudgeQuestion kNeedleQuestion = {.text = kOneMark,
                                       .system = "You are a helpful assistant.",
                                       .temperature = 0,
                                       .request = "question",
                                       .reference = "needle"};

std::string judge_request(const JudgeQuestion& question, const nlohmann::json& row) {
  if (question.parts != nullptr) return question.parts(row).request;
  const std::array kFields = {question.request, "instruction", "prompt", "input", "question", "query"};
  for (const char* field : kFields) {
    const auto found = row.find(field);
    if (found != row.end() && found->is_string()) return found->get<std::string>();
  }
  fail({.place = "request",
        .found = "no text of it in the row",
        .expected = fmt::format("one of {}", fmt::join(kFields.begin() + 1, kFields.end(), ", "))});
}

std::string judge_reference(const JudgeQuestion& question, const nlohmann::json& row,
                            std::span<const std::string> references) {
  if (question.parts != nullptr) return question.parts(row).reference;
  const auto found = row.find(question.reference);
  if (found != row.end() && found->is_string()) return found->get<std::string>();
  if (!references.empty()) return references.front();
  fail({.place = "reference",
        .found = "none in the row",
        .expected = fmt::format("\"{}\" or references, which the judge is shown", question.reference)});
}

bool shows_reference(std::string_view question) { return question.find("$REFERENCE$") != std::string_view::npos; }

std::string judge_prompt(std::string_view question, const JudgedAnswer& answer) {
  const std::array<std::pair<std::string_view, std::string_view>, 3> slots = {
      {{"$INST$", answer.instruction}, {"$RESPONSE$", answer.response}, {"$REFERENCE$", answer.reference}}};
  std::string prompt;
  for (size_t at = 0; at < question.size();) {
    bool filled = false;
    for (const auto& [slot, text] : slots) {
      if (question.substr(at, slot.size()) != slot) continue;
      prompt += text;
      at += slot.size();
      filled = true;
      break;
    }
    if (!filled) prompt += question[at++];
  }
  return prompt;
}

}  // namespace kvarena::metrics
