#pragma once
// Answers to command lines that say the same on every machine, as a text of one line an answer: the words, a tab, the
// exit code, a tab, the page as JSON.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/terminal/page.h"

namespace kvarena {

struct KeptAnswer {
  Page page;
  int code = 0;
};

/// A line of such a text, with its end. `words` are a command line without the program's name.
[[nodiscard]] std::string kept_answer_line(const std::vector<std::string>& words, const KeptAnswer& answer);

/// The answer to exactly these words (-h stands for --help), if it is among `answers`.
[[nodiscard]] std::optional<KeptAnswer> find_kept_answer(std::string_view answers,
                                                         const std::vector<std::string>& words);

}  // namespace kvarena
