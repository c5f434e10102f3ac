#pragma once
// Prompts that ask a judge model about an answer.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace kvarena::metrics {

/// A row's texts at $INST$ and $REFERENCE$ of a question.
struct JudgeParts {
  std::string request;
  std::string reference;
};

/// A question to a judge model, with $INST$, $RESPONSE$ and $REFERENCE$ where request, answer and truth go.
struct JudgeQuestion {
  const char* text;
  const char* system;   ///< the message before it; "" = none
  double temperature;   ///< of the judge
  const char* request;  ///< member of a row that holds the request, before all other names of it
  const char*
      reference;  ///< member of a row that holds the truth; without it the row's first reference. "" = not asked
  /// Makes both of a row, where they are more than members of it. Throws UserError.
  JudgeParts (*parts)(const nlohmann::json& row) = nullptr;
  int64_t max_tokens = 1024;  ///< of the judge's answer
};

/// Six marks (THUDM/LongWriter @3fcfdff4 evaluation/judge.txt, word for word).
extern const JudgeQuestion kQualityQuestion;

/// One mark of 1, 3, 5, 7 or 10: the rubric of gkamradt/LLMTest_NeedleInAHaystack (needlehaystack/evaluators/openai.py)
/// in LangChain's template labeled_score_string, word for word, as the two programs put them together.
extern const JudgeQuestion kNeedleQuestion;

/// The request that a row's answer is to, under the question's own name or another of its names. Throws UserError.
[[nodiscard]] std::string judge_request(const JudgeQuestion& question, const nlohmann::json& row);

/// The right answer: the row's member of the question's name, or the first of `references`. Throws UserError.
[[nodiscard]] std::string judge_reference(const JudgeQuestion& question, const nlohmann::json& row,
                                          std::span<const std::string> references);

/// Whether a question's text shows the right answer.
[[nodiscard]] bool shows_reference(std::string_view question);

/// Texts for a question's slots.
struct JudgedAnswer {
  std::string_view instruction;
  std::string_view response;
  std::string_view reference;
};

/// `question` with its slots replaced, each text as it is: place-holders inside them stay.
[[nodiscard]] std::string judge_prompt(std::string_view question, const JudgedAnswer& answer);

}  // namespace kvarena::metrics
