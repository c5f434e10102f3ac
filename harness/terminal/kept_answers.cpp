#include "harness/terminal/kept_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace kvarena {
namespace {

/// An empty word, or one that holds a blank, a tab or a line's end, would read as other words.
bool may_be_kept(const std::string& word) { return !word.empty() && word.find_first_of(" \t\n") == std::string::npos; }

std::string key_of(std::vector<std::string> words) {
  std::ranges::replace(words, "-h", "--help");
  return fmt::format("{}\t", fmt::join(words, " "));
}

}  // namespace

std::string kept_answer_line(const std::vector<std::string>& words, const KeptAnswer& answer) {
  return fmt::format("{}{}\t{}\n", key_of(words), answer.code, answer.page.to_json().dump());
}

std::optional<KeptAnswer> find_kept_answer(std::string_view answers, const std::vector<std::string>& words) {
  if (!std::ranges::all_of(words, may_be_kept)) return std::nullopt;
  const std::string key = key_of(words);
  while (!answers.empty()) {
    const std::string_view line = answers.substr(0, answers.find('\n'));
    answers.remove_prefix(std::min(line.size() + 1, answers.size()));
    if (!line.starts_with(key)) continue;
    const std::string_view rest = line.substr(key.size());
    const size_t tab = rest.find('\t');
    KeptAnswer answer{.page = Page::from_json(nlohmann::json::parse(rest.substr(tab + 1)))};
    std::from_chars(rest.data(), rest.data() + tab, answer.code);
    return answer;
  }
  return std::nullopt;
}

}  // namespace kvarena
