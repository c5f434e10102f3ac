#pragma once
// Questions about a context beside the one that comes with it: out of a file, made from the context's own sentences, or
// asked of a language model.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::datasets {

/// What is asked of one context.
struct ContextQuestions {
  std::vector<std::string> train;
  std::vector<std::string> test;
};

/// A JSON Lines file (or an array) of {"context_id", "question", "split": "train" or "test"}, by context. Throws
/// UserError naming file and line for a row that is not one.
[[nodiscard]] std::map<std::string, ContextQuestions> read_questions(const std::filesystem::path& file);

/// `count` questions, each the beginning of a sentence that the text contains, to be completed: sentences of 8 to 60
/// words, spread over the text as evenly as there are some, starting with one that `seed` chooses. Fewer when the text
/// has fewer such sentences. The first half of the words is shown.
[[nodiscard]] std::vector<std::string> sentence_questions(std::string_view text, int64_t count, uint64_t seed);

/// What a language model is asked for `count` questions about a text.
[[nodiscard]] std::string question_request(std::string_view text, int64_t count);

/// The questions of its answer: lines that end with a question mark, without what numbers or marks them.
[[nodiscard]] std::vector<std::string> questions_in(std::string_view answer);

}  // namespace kvarena::datasets
