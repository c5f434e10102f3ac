#pragma once
// LongGenBench (Wu et al.): did a long text keep to its numbered plan.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::metrics {

/// Pieces of the text between "#*#" marks, by the number after `type` ("Week 3"); the first piece of a number wins.
[[nodiscard]] std::map<int64_t, std::string> longgenbench_blocks(std::string_view text, std::string_view type);

/// 100 * |blocks with numbers 1..number| / number.
[[nodiscard]] double longgenbench_completion_rate(const std::map<int64_t, std::string>& blocks, int64_t number);

struct CompletionQuestion {
  int64_t number = 0;
  std::string event;
  std::string prompt;  ///< ends "Please answer with 'yes' or 'no' only."
};

/// Questions to the judge: one for each check whose block exists, in the order given.
[[nodiscard]] std::vector<CompletionQuestion> longgenbench_questions(
    const std::map<int64_t, std::string>& blocks, std::span<const std::pair<std::string, std::string>> checks);

/// "yes" anywhere in the answer, case aside.
[[nodiscard]] bool longgenbench_yes(std::string_view judge_answer);

}  // namespace kvarena::metrics
