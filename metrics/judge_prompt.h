#pragma once
// What a judge is asked about an answer.

#include <string>
#include <string_view>

namespace kvarena {

/// LongBench-Write's question for six marks (THUDM/LongWriter @3fcfdff4 evaluation/judge.txt, word for word), with
/// $INST$ and $RESPONSE$ where the request and the answer go.
extern const char* const kQualityQuestion;

/// `question` with $INST$ and $RESPONSE$ replaced, each text as it is: place-holders inside them stay.
[[nodiscard]] std::string judge_prompt(std::string_view question, std::string_view instruction,
                                       std::string_view response);

}  // namespace kvarena
