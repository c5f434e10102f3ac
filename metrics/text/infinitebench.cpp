#include "metrics/text/infinitebench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/core/error.h"
#include "metrics/algorithms/chinese_text.h"
#include "metrics/algorithms/python_json.h"
#include "metrics/algorithms/regex.h"
#include "metrics/algorithms/rouge.h"
#include "metrics/registry.h"
#include "metrics/text/qa_f1.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;
using Phrases = std::initializer_list<std::string_view>;

std::string blanked(std::string_view text, Phrases parts) {
  std::string out(text);
  for (const std::string_view part : parts) out = replace_all(out, part, " ");
  return out;
}

std::string word_breaks_blanked(std::string_view text) {
  return blanked(text, {"\n", ":", "\"", "'", ".", ",", "?", "!", "{", "}"});
}

std::string single_blanks(std::string text) {
  while (contains(text, "  ")) text = replace_all(text, "  ", " ");
  return text;
}

std::vector<std::string> ascii_digit_runs(std::string_view text) {
  std::vector<std::string> runs;
  for (size_t at = text.find_first_of("0123456789"); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
    runs.emplace_back(text.substr(at, end - at));
    at = text.find_first_of("0123456789", end);
  }
  return runs;
}

// Where the official code raises, which scores 0; never leaves this file.
struct Raised {};

const std::string& text_of(const json& label) {
  if (!label.is_string()) throw Raised{};
  return label.get_ref<const std::string&>();
}

// Items of a label as Python iterates over them: a list's elements, a string's characters.
std::vector<json> elements_of(const json& label) {
  if (label.is_array()) return {label.begin(), label.end()};
  std::vector<json> characters;
  for (const std::string& character : characters_of(text_of(label))) characters.emplace_back(character);
  return characters;
}

json element_of(const json& label, size_t index) {
  std::vector<json> elements = elements_of(label);
  if (index >= elements.size()) throw Raised{};
  return std::move(elements[index]);
}

json first_if_list(const json& label) { return label.is_array() ? element_of(label, 0) : label; }

// `value in label`
bool is_in(std::string_view value, const json& label) {
  if (label.is_string()) return contains(text_of(label), value);
  const std::vector<json> elements = elements_of(label);
  return std::find(elements.begin(), elements.end(), json(value)) != elements.end();
}

bool has_word(const std::vector<std::string>& words, const json& label) {
  return label.is_string() && std::find(words.begin(), words.end(), text_of(label)) != words.end();
}

// Decimal digits of any script as ASCII ones.
std::string ascii_digits(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    append_utf8(out, is_decimal(c) ? U'0' + static_cast<char32_t>(decimal_value(c)) : c);
  }
  return out;
}

// int(text): a sign, digits, single underscores between digits. Beyond 64 bits the nearest double.
json integer_of(std::string_view text) {
  static const Regex kInteger(R"(^[+-]?\d+(_\d+)*\z)");
  if (kInteger.search(text).empty()) throw Raised{};
  const std::string digits = replace_all(ascii_digits(text), "_", "");
  const std::string_view number = std::string_view(digits).substr(digits.starts_with('+') ? 1 : 0);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  return error == std::errc{} ? json(value) : json(std::strtod(digits.c_str(), nullptr));
}

// The text after the first prefix that occurs, one character skipped. Nothing when no prefix occurs; false when the
// text ends with it.
std::optional<bool> answer_begins_with(const std::string& text, Phrases prefixes, const std::vector<json>& labels) {
  for (const std::string_view prefix : prefixes) {
    const size_t at = text.find(prefix);
    if (at == std::string::npos) continue;
    size_t next = at + prefix.size();
    if (next == text.size()) return false;
    (void)next_code_point(text, next);
    const std::string_view rest = std::string_view(text).substr(next);
    return std::any_of(labels.begin(), labels.end(),
                       [&](const json& label) { return rest.starts_with(text_of(label)); });
  }
  return std::nullopt;
}

double first_number(std::string_view prediction, const json& label) {
  const auto runs = ascii_digit_runs(prediction);
  return first_if_list(label) == json(runs.empty() ? "" : runs.front());
}

double kv_retrieval(std::string_view prediction, const json& label) {
  return has_word(split_white_space(word_breaks_blanked(prediction)), label);
}

double longdialogue_qa(std::string_view prediction, const json& label) {
  const json wanted = element_of(label, 0);
  auto words = split_white_space(word_breaks_blanked(prediction));
  for (std::string& word : words) {
    std::transform(word.begin(), word.end(), word.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? char(c - 32) : c; });
  }
  return has_word(words, wanted);
}

double code_run(std::string_view prediction, const json& label) {
  const json wanted = first_if_list(label);
  const auto words = split_white_space(blanked(prediction, {"\n", ".", "`", "'", "\"", ":"}));
  return !words.empty() && python_equal(integer_of(words.back()), wanted);
}

double code_debug(std::string_view prediction, const json& label) {
  const json letter = element_of(label, 1);
  const json function = element_of(label, 0);
  const std::string_view answer = strip(prediction);
  size_t two = 0;
  for (int i = 0; i < 2 && two < answer.size(); ++i) (void)next_code_point(answer, two);
  const std::string shown = letter.is_string() ? text_of(letter) : letter.dump();
  if (answer.substr(0, two) == shown + "." || answer.substr(0, two) == shown + ":") return 1;
  const std::string text = single_blanks(blanked(answer, {"\n", "`", "'", "\"", "-", "*", "Option", "option"}));
  return answer_begins_with(text, {"answer is:", "is:", "answer:"}, {letter, function}).value_or(false);
}

double longbook_choice(std::string_view prediction, const json& label) {
  const std::string_view answer = strip(prediction);
  if (answer.empty()) return 0;
  if (answer[0] >= 'A' && answer[0] <= 'D') return is_in(answer.substr(0, 1), label);
  if (is_in(answer, label)) return 1;
  const std::string text = single_blanks(blanked(answer, {"\n", "\"", "'", ".", ",", "?", "!", "{", "}"}));
  const auto begins = answer_begins_with(text, {"answer is:", "answer:", "answer is", "option is"}, elements_of(label));
  if (begins) return *begins;
  for (const std::string& word : split_white_space(text)) {
    if (contains("ABCD", word)) return is_in(word, label);
  }
  return 0;
}

double math_find(std::string_view prediction, const json& label) {
  static const Regex kNumber(R"(\d+\.\d+|\d+)");
  const json wanted = first_if_list(label);
  if (!wanted.is_number() && !wanted.is_boolean()) throw Raised{};
  const RegexMatch match = kNumber.search(prediction);
  if (match.empty()) return 0;
  if (!wanted.is_number_float()) return python_equal(integer_of(match[0]), wanted);
  return std::strtod(ascii_digits(match[0]).c_str(), nullptr) == wanted.get<double>();
}

double math_calc(std::string_view prediction, const json& label, std::string_view model_name) {
  if (!label.is_array()) throw Raised{};
  const json first = element_of(label, 0);
  const json& wanted = first.is_array() ? first : label;
  if (wanted.empty()) throw Raised{};
  auto numbers = ascii_digit_runs(prediction);
  if (model_name == "gpt4" && !numbers.empty()) numbers.erase(numbers.begin());
  size_t agreed = 0;
  while (agreed < std::min(wanted.size(), numbers.size()) &&
         python_equal(integer_of(numbers[agreed]), wanted[agreed])) {
    ++agreed;
  }
  return static_cast<double>(agreed) / static_cast<double>(wanted.size());
}

using TextScore = double (*)(std::string_view, std::string_view);

// The best over the labels of a score of two texts.
double best_of(std::string_view prediction, const std::vector<json>& labels, TextScore score) {
  double best = 0;
  for (const json& label : labels) best = std::max(best, score(prediction, text_of(label)));
  return best;
}

double rouge_lsum(std::string_view prediction, std::string_view reference) {
  return google_rouge_lsum(prediction, reference, false).f;
}

double longbook_sum(std::string_view prediction, const json& label) {
  const std::vector<json> references = label.is_array() ? elements_of(label) : std::vector<json>{label};
  return best_of(prediction, references, rouge_lsum);
}

double character_f1(std::string_view prediction, std::string_view answer) {
  return bag_f1(characters_of(normalized_chinese(prediction)), characters_of(normalized_chinese(answer))).f;
}

double official_score(const std::string& task, std::string_view prediction, const json& label,
                      const std::string& model) {
  if (task == "passkey" || task == "number_string") return first_number(prediction, label);
  if (task == "kv_retrieval") return kv_retrieval(prediction, label);
  if (task == "code_run") return code_run(prediction, label);
  if (task == "code_debug") return code_debug(prediction, label);
  if (task == "longdialogue_qa_eng") return longdialogue_qa(prediction, label);
  if (task == "longbook_qa_eng") return best_of(prediction, elements_of(label), qa_f1);
  if (task == "longbook_qa_chn") return best_of(prediction, elements_of(label), character_f1);
  if (task == "longbook_sum_eng") return longbook_sum(prediction, label);
  if (task == "longbook_choice_eng") return longbook_choice(prediction, label);
  if (task == "math_find") return math_find(prediction, label);
  if (task == "math_calc") return math_calc(prediction, label, model);
  const std::vector<std::string> tasks = {
      "passkey",          "number_string",       "kv_retrieval",    "code_run",
      "code_debug",       "longdialogue_qa_eng", "longbook_qa_eng", "longbook_qa_chn",
      "longbook_sum_eng", "longbook_choice_eng", "math_find",       "math_calc"};
  fail({.place = "metric \"infinitebench\": extras.task",
        .found = fmt::format("\"{}\"", task),
        .expected = "the name of an InfiniteBench task",
        .nearest = nearest_name(task, tasks)});
}

// The label with its type, a number where the task wants numbers and only texts are given.
json label_from(const MetricInput& input, const std::string& task) {
  for (const char* name : {"ground_truth", "label"}) {
    const auto given = input.extras.find(name);
    if (given != input.extras.end()) return *given;
  }
  const bool number = task == "math_find" || task == "math_calc" || task == "code_run";
  json label = json::array();
  for (const std::string& reference : input.references) {
    const json value = number ? json::parse(reference, nullptr, false) : json();
    label.push_back(value.is_number() || value.is_array() ? value : json(reference));
  }
  return task == "kv_retrieval" && !label.empty() ? label[0] : label;
}

MetricScore score_infinitebench(const MetricInput& input) {
  const std::string task = input.extras.value("task", "");
  return {
      infinitebench_score(task, input.prediction, label_from(input, task), input.extras.value("model_name", "generic")),
      {},
      {}};
}

json recompute(const json& row, const VectorContext&) {
  return {{"expected",
           infinitebench_score(row.at("task").get<std::string>(), row.at("prediction").get_ref<const std::string&>(),
                               row.at("label"), row.value("model_name", "generic"))}};
}

}  // namespace

double infinitebench_score(const std::string& task, std::string_view prediction, const json& label,
                           const std::string& model) {
  try {
    return official_score(task, prediction, label, model);
  } catch (const Raised&) {
    return 0;
  }
}

KVARENA_METRIC(
    {.id = "infinitebench",
     .title = "InfiniteBench official score",
     .version = 2,
     .summary = "The scorer of extras.task. Label: extras.ground_truth or extras.label with its JSON type, else the "
                "references. Where the official code raises (a decimal answer to an integer label, a number where a "
                "text is due) the score is 0.",
     .source = "OpenBMB/InfiniteBench @88b3daa6 src/compute_scores.py",
     .score = score_infinitebench,
     .vectors = {{"infinitebench", recompute}}});

}  // namespace kvarena::metrics
