#include "datasets/questions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "datasets/draw.h"
#include "datasets/records.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

constexpr size_t kFewestWords = 8;
constexpr size_t kMostWords = 60;

using Words = std::vector<std::string>;

/// Sentences end with a full stop, a question or an exclamation mark before a space, or with a line.
std::vector<Words> sentences_of(std::string_view text) {
  std::vector<Words> sentences(1);
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      sentences.back().push_back(word);
      if (word.find_first_of(".?!", word.size() - 1) != std::string::npos) sentences.emplace_back();
    }
    if (!sentences.back().empty()) sentences.emplace_back();
  }
  return sentences;
}

}  // namespace

std::map<std::string, ContextQuestions> read_questions(const std::filesystem::path& file) {
  std::map<std::string, ContextQuestions> questions;
  RecordReader reader(file);
  while (const auto record = reader.next()) {
    const Row row = parse_object(*record);
    ContextQuestions& context = questions[string_field(row, "context_id", record->place)];
    const std::string split = string_field(row, "split", record->place);
    if (split != "train" && split != "test") {
      fail({.place = record->place, .found = fmt::format("split \"{}\"", split), .expected = "train or test"});
    }
    (split == "train" ? context.train : context.test).push_back(string_field(row, "question", record->place));
  }
  return questions;
}

std::string question_request(std::string_view text, int64_t count) {
  return fmt::format(
      "{}\n\nWrite {} questions about the text above. Ask about different parts of it, from its beginning to its end. "
      "Each can be answered from the text alone, in a few words. Write one question a line and nothing else.",
      text, count);
}

std::vector<std::string> questions_in(std::string_view answer) {
  std::vector<std::string> questions;
  std::istringstream lines{std::string(answer)};
  for (std::string line; std::getline(lines, line);) {
    const size_t end = line.find_last_not_of(" \t\r*\"");
    if (end == std::string::npos || line[end] != '?') continue;
    // "12. ", "3) ", "- ", "Q1: " and emphasis come before the question.
    size_t begin = line.find_first_not_of(" \t*#\"-");
    const size_t mark = line.find_first_of(".):", begin);
    const std::string_view head = std::string_view(line).substr(begin, mark == std::string::npos ? 0 : mark - begin);
    const size_t digits = head.starts_with('Q') ? 1 : 0;
    if (head.size() > digits && head.find_first_not_of("0123456789", digits) == std::string_view::npos) {
      begin = line.find_first_not_of(" \t*\"", mark + 1);
    }
    if (begin < end) questions.push_back(line.substr(begin, end + 1 - begin));
  }
  return questions;
}

std::vector<std::string> sentence_questions(std::string_view text, int64_t count, uint64_t seed) {
  std::vector<Words> fit;
  for (Words& words : sentences_of(text)) {
    if (words.size() >= kFewestWords && words.size() <= kMostWords) fit.push_back(std::move(words));
  }
  std::vector<std::string> questions;
  const auto wanted = std::min(static_cast<size_t>(std::max<int64_t>(count, 0)), fit.size());
  if (wanted == 0) return questions;
  Draw draw(seed, "sentence questions");
  const size_t first = draw.below(fit.size());
  for (size_t i = 0; i < wanted; ++i) {
    const Words& words = fit[(first + i * fit.size() / wanted) % fit.size()];
    const auto shown = words.begin() + static_cast<std::ptrdiff_t>((words.size() + 1) / 2);
    questions.push_back(
        fmt::format("Complete this sentence of the text: {} ...", fmt::join(words.begin(), shown, " ")));
  }
  return questions;
}

}  // namespace kvarena::datasets
