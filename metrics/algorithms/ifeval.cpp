#include "metrics/algorithms/ifeval.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/algorithms/english_sentences.h"
#include "metrics/algorithms/langdetect.h"
#include "metrics/algorithms/python_json.h"
#include "metrics/algorithms/regex.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;
using Text = std::string_view;

/// Arguments of one instruction, read with errors that name it.
class Arguments {
 public:
  Arguments(const std::string& id, const json& values) : id_(id), values_(values) {}

  [[nodiscard]] int64_t number(const char* name) const {
    const json& value = at(name);
    if (!value.is_number_integer() || value < 0) refuse(name, value.dump(), "a number from 0");
    return value.get<int64_t>();
  }
  [[nodiscard]] std::string text(const char* name) const { return text_of(name, at(name)); }
  [[nodiscard]] char32_t character(const char* name) const {
    const std::u32string characters = decode_utf8(text(name));
    if (characters.size() != 1) refuse(name, text(name), "one character");
    return characters.front();
  }
  [[nodiscard]] std::vector<std::string> texts(const char* name) const {
    const json& value = at(name);
    if (!value.is_array() || value.empty()) refuse(name, value.dump(), "a list of texts");
    std::vector<std::string> texts;
    for (const json& each : value) texts.push_back(text_of(name, each));
    return texts;
  }
  /// Whether a count is as the pair of relation and threshold says.
  [[nodiscard]] bool allows(int64_t count, const char* relation, const char* threshold) const {
    const std::string how = text(relation);
    if (how == "less than") return count < number(threshold);
    if (how == "at least") return count >= number(threshold);
    refuse(relation, how, "\"less than\" or \"at least\"");
  }
  /// A pattern made of the argument.
  [[nodiscard]] Regex regex(const char* name, const std::string& pattern) const {
    try {
      return Regex(pattern);
    } catch (const InternalError&) {
      refuse(name, pattern, "a regular expression");
    }
  }

 private:
  [[nodiscard]] const json& at(const char* name) const {
    const auto found = values_.find(name);
    if (found == values_.end() || found->is_null()) refuse(name, "nothing", "the argument");
    return *found;
  }
  [[nodiscard]] std::string text_of(const char* name, const json& value) const {
    if (!value.is_string() || value == "") refuse(name, value.dump(), "a text");
    return value.get<std::string>();
  }
  [[noreturn]] void refuse(const char* name, const std::string& found, const std::string& expected) const {
    fail({.place = fmt::format("kwargs of {}: {}", id_, name), .found = found, .expected = expected});
  }

  const std::string& id_;
  const json& values_;
};

int64_t count_of(const Regex& pattern, Text text) { return static_cast<int64_t>(pattern.find_all(text).size()); }

bool has(const Regex& pattern, Text text) { return !pattern.search(text).empty(); }

// re.split(separator, text)
std::vector<Text> split_by(const Regex& separator, Text text) {
  std::vector<Text> parts;
  size_t from = 0;
  for (const RegexMatch& match : separator.find_all(text)) {
    const auto at = static_cast<size_t>(match[0].data() - text.data());
    parts.push_back(text.substr(from, at - from));
    from = at + match[0].size();
  }
  parts.push_back(text.substr(from));
  return parts;
}

Text without_prefix(Text text, Text prefix) { return text.starts_with(prefix) ? text.substr(prefix.size()) : text; }

Text without_suffix(Text text, Text suffix) {
  return text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text;
}

// --- keywords ---

bool has_keywords(const Arguments& arguments, Text response) {
  return std::ranges::all_of(arguments.texts("keywords"), [&](const std::string& word) {
    return has(arguments.regex("keywords", "(?i)" + word), response);
  });
}

bool has_keyword_often(const Arguments& arguments, Text response) {
  const std::string keyword(strip(arguments.text("keyword")));
  return arguments.allows(count_of(arguments.regex("keyword", "(?i)" + keyword), response), "relation", "frequency");
}

bool has_no_forbidden_word(const Arguments& arguments, Text response) {
  return std::ranges::none_of(arguments.texts("forbidden_words"), [&](const std::string& word) {
    return has(arguments.regex("forbidden_words", "(?i)\\b" + word + "\\b"), response);
  });
}

// The official code draws a letter at random in the place of a character that is none of a to z; here it is counted.
bool has_letter_often(const Arguments& arguments, Text response) {
  const std::u32string letter = decode_utf8(lower(encode_utf8(std::u32string(1, arguments.character("letter")))));
  const std::u32string letters = decode_utf8(lower(response));
  return arguments.allows(std::ranges::count(letters, letter.front()), "let_relation", "let_frequency");
}

// --- language and case ---

// A text in which langdetect finds nothing to tell counts as right, as in the official code.
bool is_in_language(Text response, const std::string& language) {
  const auto found = language_detector().detect(response);
  return !found || *found == language;
}

bool is_in_named_language(const Arguments& arguments, Text response) {
  return is_in_language(response, arguments.text("language"));
}

bool is_english_in_capitals(const Arguments&, Text response) {
  return is_upper(response) && is_in_language(response, "en");
}

bool is_english_in_small_letters(const Arguments&, Text response) {
  return is_lower(response) && is_in_language(response, "en");
}

bool has_capital_words(const Arguments& arguments, Text response) {
  int64_t count = 0;
  for (const Text sentence : punkt().sentences(response)) {
    count += std::ranges::count_if(treebank_words(sentence), [](const std::string& word) { return is_upper(word); });
  }
  return arguments.allows(count, "capital_relation", "capital_frequency");
}

// --- lengths ---

bool has_sentences(const Arguments& arguments, Text response) {
  const auto count = static_cast<int64_t>(punkt().sentences(response).size());
  return arguments.allows(count, "relation", "num_sentences");
}

// Runs of what \w of Python's re matches, as NLTK up to 3.9 counts words; the package regex, which 3.10 runs, has ½ and
// combining marks otherwise.
bool has_words(const Arguments& arguments, Text response) {
  int64_t count = 0;
  bool within = false;
  for (size_t i = 0; i < response.size();) {
    const bool was_within = within;
    within = is_word(next_code_point(response, i));
    count += within && !was_within ? 1 : 0;
  }
  return arguments.allows(count, "relation", "num_words");
}

// Only the first and the last paragraph may be blank.
bool has_divided_paragraphs(const Arguments& arguments, Text response) {
  static const Regex kDivider(R"(\s?\*\*\*\s?)");
  const std::vector<Text> paragraphs = split_by(kDivider, response);
  int64_t count = 0;
  for (size_t i = 0; i < paragraphs.size(); ++i) {
    if (!strip(paragraphs[i]).empty()) {
      ++count;
    } else if (i != 0 && i + 1 != paragraphs.size()) {
      return false;
    }
  }
  return count == arguments.number("num_paragraphs");
}

// The first word of a paragraph in lower case, up to a mark, without quotes before it.
std::string first_word(Text paragraph) {
  const std::string word = split_white_space(paragraph).front();
  const std::string bare(lstrip_any(lstrip_any(word, "'"), "\""));
  return lower(std::string_view(bare).substr(0, bare.find_first_of(".,?!'\"")));
}

bool begins_paragraph_with(const Arguments& arguments, Text response) {
  const int64_t wanted = arguments.number("num_paragraphs"), nth = arguments.number("nth_paragraph");
  const std::vector<std::string> paragraphs = split_on(response, "\n\n");
  const auto count =
      std::ranges::count_if(paragraphs, [](const std::string& paragraph) { return !strip(paragraph).empty(); });
  if (nth < 1 || nth > count) return false;
  const Text paragraph = strip(paragraphs[static_cast<size_t>(nth - 1)]);
  return count == wanted && !paragraph.empty() && first_word(paragraph) == lower(arguments.text("first_word"));
}

// --- content and format ---

bool has_placeholders(const Arguments& arguments, Text response) {
  static const Regex kPlaceholder(R"(\[.*?\])");
  return count_of(kPlaceholder, response) >= arguments.number("num_placeholders");
}

bool has_postscript(const Arguments& arguments, Text response) {
  const std::string marker(strip(arguments.text("postscript_marker")));
  const std::string text = lower(response);
  if (marker == "P.P.S") return has(Regex(R"(p\.\s?p\.\s?s)"), text);
  if (marker == "P.S.") return has(Regex(R"(p\.\s?s\.)"), text);
  return has(arguments.regex("postscript_marker", lower(marker)), text);
}

bool has_bullets(const Arguments& arguments, Text response) {
  static const Regex kStar(R"((?m)^\s*\*[^*].*$)"), kDash(R"((?m)^\s*-.*$)");
  return count_of(kStar, response) + count_of(kDash, response) == arguments.number("num_bullets");
}

bool is_one_of_options(const Arguments&, Text response) {
  return std::ranges::any_of(
      std::initializer_list<Text>{"My answer is yes.", "My answer is no.", "My answer is maybe."},
      [&](Text option) { return contains(response, option); });
}

bool has_highlights(const Arguments& arguments, Text response) {
  static const Regex kSingle(R"(\*[^\n*]*\*)"), kDouble(R"(\*\*[^\n*]*\*\*)");
  int64_t count = 0;
  for (const RegexMatch& match : kSingle.find_all(response)) count += strip(strip_any(match[0], "*")).empty() ? 0 : 1;
  for (const RegexMatch& match : kDouble.find_all(response)) {
    count += strip(without_suffix(without_prefix(match[0], "**"), "**")).empty() ? 0 : 1;
  }
  return count >= arguments.number("num_highlights");
}

bool has_sections(const Arguments& arguments, Text response) {
  const std::string splitter(strip(arguments.text("section_spliter")));
  const Regex heading = arguments.regex("section_spliter", R"(\s?)" + splitter + R"(\s?\d+\s?)");
  return count_of(heading, response) >= arguments.number("num_sections");
}

bool is_json(const Arguments&, Text response) {
  static const Regex kSurrogate(R"(\\u[dD][89a-fA-F][0-9a-fA-F]{2})");
  Text text = strip(response);
  for (const Text fence : {"```json", "```Json", "```JSON", "```"}) text = without_prefix(text, fence);
  text = strip(without_suffix(text, "```"));
  if (text.starts_with("\xEF\xBB\xBF"))
    return false;  // Python refuses this mark, and accepts half a pair of surrogates
  try {
    (void)parse_python_json(kSurrogate.sub(text, [](const RegexMatch&) { return R"(\u0041)"; }));
    return true;
  } catch (const json::parse_error&) {
    return false;
  } catch (const json::out_of_range&) {
    return true;  // a number that is infinity in Python
  }
}

bool has_title(const Arguments&, Text response) {
  static const Regex kTitle(R"(<<[^\n]+>>)");
  return std::ranges::any_of(kTitle.find_all(response), [](const RegexMatch& match) {
    const Text title = lstrip_any(match[0], "<");
    return !strip(title.substr(0, title.find_last_not_of('>') + 1)).empty();
  });
}

bool has_two_responses(const Arguments&, Text response) {
  const std::vector<std::string> parts = split_on(response, "******");
  std::vector<Text> given;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (const Text part = strip(parts[i]); !part.empty()) {
      given.push_back(part);
    } else if (i != 0 && i + 1 != parts.size()) {
      return false;
    }
  }
  return given.size() == 2 && given[0] != given[1];
}

bool repeats_prompt(const Arguments& arguments, Text response) {
  return lower(strip(response)).starts_with(lower(strip(arguments.text("prompt_to_repeat"))));
}

bool ends_with_phrase(const Arguments& arguments, Text response) {
  return lower(strip_any(strip(response), "\"")).ends_with(lower(strip(arguments.text("end_phrase"))));
}

bool is_quoted(const Arguments&, Text response) {
  const Text text = strip(response);
  return text.size() > 1 && text.front() == '"' && text.back() == '"';
}

bool has_no_comma(const Arguments&, Text response) { return !contains(response, ","); }

using Check = bool (*)(const Arguments& arguments, Text response);

const std::map<std::string, Check>& checks() {
  static const std::map<std::string, Check> kChecks = {
      {"change_case:capital_word_frequency", has_capital_words},
      {"change_case:english_capital", is_english_in_capitals},
      {"change_case:english_lowercase", is_english_in_small_letters},
      {"combination:repeat_prompt", repeats_prompt},
      {"combination:two_responses", has_two_responses},
      {"detectable_content:number_placeholders", has_placeholders},
      {"detectable_content:postscript", has_postscript},
      {"detectable_format:constrained_response", is_one_of_options},
      {"detectable_format:json_format", is_json},
      {"detectable_format:multiple_sections", has_sections},
      {"detectable_format:number_bullet_lists", has_bullets},
      {"detectable_format:number_highlighted_sections", has_highlights},
      {"detectable_format:title", has_title},
      {"keywords:existence", has_keywords},
      {"keywords:forbidden_words", has_no_forbidden_word},
      {"keywords:frequency", has_keyword_often},
      {"keywords:letter_frequency", has_letter_often},
      {"language:response_language", is_in_named_language},
      {"length_constraints:nth_paragraph_first_word", begins_paragraph_with},
      {"length_constraints:number_paragraphs", has_divided_paragraphs},
      {"length_constraints:number_sentences", has_sentences},
      {"length_constraints:number_words", has_words},
      {"punctuation:no_comma", has_no_comma},
      {"startend:end_checker", ends_with_phrase},
      {"startend:quotation", is_quoted},
  };
  return kChecks;
}

}  // namespace

std::vector<std::string> ifeval_instructions() {
  std::vector<std::string> ids;
  for (const auto& [id, check] : checks()) ids.push_back(id);
  return ids;
}

bool follows_instruction(const std::string& id, const json& arguments, std::string_view response) {
  const auto check = checks().find(id);
  if (check == checks().end()) {
    fail({.place = "instruction_id_list",
          .found = fmt::format("\"{}\"", id),
          .expected = fmt::format("an instruction of IFEval: {}", fmt::join(ifeval_instructions(), ", ")),
          .nearest = nearest_name(id, ifeval_instructions())});
  }
  return check->second(Arguments(check->first, arguments), response);
}

}  // namespace kvarena::metrics
