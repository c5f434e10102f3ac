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

bool has_word(const std::vector<std::string>& words, const json& label) {
  return label.is_string() && std::find(words.begin(), words.end(), label.get_ref<const std::string&>()) != words.end();
}

// `value in label` of Python: an element of a list, a part of a string.
bool is_in(std::string_view value, const json& label) {
  if (label.is_string()) return contains(label.get_ref<const std::string&>(), value);
  return label.is_array() && std::any_of(label.begin(), label.end(), [&](const json& l) { return l == value; });
}

std::vector<std::string> strings_of(const json& label) {
  std::vector<std::string> out;
  if (label.is_string()) out.push_back(label.get<std::string>());
  for (const json& element : label.is_array() ? label : json::array()) {
    if (element.is_string()) out.push_back(element.get<std::string>());
  }
  return out;
}

// The text after the first prefix that occurs, one character skipped; nothing when none occurs, empty when the text
// ends with the prefix.
std::optional<std::string> after_prefix(const std::string& text, Phrases prefixes) {
  for (const std::string_view prefix : prefixes) {
    const size_t at = text.find(prefix);
    if (at == std::string::npos) continue;
    size_t next = at + prefix.size();
    if (next < text.size()) (void)next_code_point(text, next);
    return text.substr(next);
  }
  return std::nullopt;
}

bool starts_with_any(std::string_view text, const std::vector<std::string>& labels) {
  return !text.empty() &&
         std::any_of(labels.begin(), labels.end(), [&](const std::string& label) { return text.starts_with(label); });
}

double first_number(std::string_view prediction, const json& label) {
  const auto runs = ascii_digit_runs(prediction);
  return label.is_string() && (runs.empty() ? "" : runs.front()) == label.get_ref<const std::string&>();
}

double kv_retrieval(std::string_view prediction, const json& label) {
  return has_word(split_white_space(word_breaks_blanked(prediction)), label);
}

double longdialogue_qa(std::string_view prediction, const json& label) {
  const json& wanted = label.is_array() && !label.empty() ? label[0] : label;
  auto words = split_white_space(word_breaks_blanked(prediction));
  for (std::string& word : words) {
    std::transform(word.begin(), word.end(), word.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? char(c - 32) : c; });
  }
  return has_word(words, wanted);
}

double code_run(std::string_view prediction, const json& label) {
  const auto words = split_white_space(blanked(strip(prediction), {"\n", ".", "`", "'", "\"", ":"}));
  if (words.empty() || !label.is_number()) return 0;
  std::string_view word = words.back();
  if (word.starts_with('+')) word.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc{} && end == word.data() + word.size() && python_equal(json(value), label);
}

double code_debug(std::string_view prediction, const json& label) {
  const auto names = strings_of(label);  // function name, letter
  if (names.size() < 2) return 0;
  const std::string& letter = names[1];
  for (const char mark : {'.', ':'}) {
    if (prediction.starts_with(letter + mark)) return 1;
  }
  const std::string text =
      single_blanks(blanked(strip(prediction), {"\n", "`", "'", "\"", "-", "*", "Option", "option"}));
  const auto rest = after_prefix(text, {"answer is:", "is:", "answer:"});
  return rest && starts_with_any(*rest, {letter, names[0]});
}

double longbook_choice(std::string_view prediction, const json& label) {
  if (prediction.empty()) return 0;
  if (prediction[0] >= 'A' && prediction[0] <= 'D') return is_in(prediction.substr(0, 1), label);
  const std::string text = single_blanks(blanked(prediction, {"\n", "\"", "'", ".", ",", "?", "!", "{", "}"}));
  if (const auto rest = after_prefix(text, {"answer is:", "answer:", "answer is", "option is"})) {
    return starts_with_any(*rest, strings_of(label));
  }
  for (const std::string& word : split_white_space(text)) {
    if (contains("ABCD", word)) return is_in(word, label);
  }
  return 0;
}

double math_find(std::string_view prediction, const json& label) {
  static const Regex kNumber(R"(\d+\.\d+|\d+)");
  const RegexMatch match = kNumber.search(prediction);
  if (match.empty() || !label.is_number()) return 0;
  if (label.is_number_integer() && contains(match[0], ".")) return 0;  // int("42.5") raises in the official code
  return std::strtod(std::string(match[0]).c_str(), nullptr) == label.get<double>();
}

double math_calc(std::string_view prediction, const json& label, std::string_view model_name) {
  auto numbers = ascii_digit_runs(prediction);
  if (model_name == "gpt4" && !numbers.empty()) numbers.erase(numbers.begin());
  if (!label.is_array() || label.empty()) return 0;
  size_t agreed = 0;
  while (agreed < std::min(label.size(), numbers.size()) && label[agreed].is_number() &&
         std::strtod(numbers[agreed].c_str(), nullptr) == label[agreed].get<double>()) {
    ++agreed;
  }
  return static_cast<double>(agreed) / static_cast<double>(label.size());
}

// The best over the labels of a score of two texts.
double best_of(std::string_view prediction, const json& label, double (*score)(std::string_view, std::string_view)) {
  double best = 0;
  for (const std::string& answer : strings_of(label)) best = std::max(best, score(prediction, answer));
  return best;
}

double summary(std::string_view prediction, std::string_view reference) {
  return google_rouge_lsum(prediction, reference, false).f;
}

double character_f1(std::string_view prediction, std::string_view answer) {
  return bag_f1(characters_of(normalized_chinese(prediction)), characters_of(normalized_chinese(answer))).f;
}

double score_task(const std::string& task, std::string_view prediction, const json& label, const std::string& model) {
  if (task == "passkey" || task == "number_string") return first_number(prediction, label);
  if (task == "kv_retrieval") return kv_retrieval(prediction, label);
  if (task == "code_run") return code_run(prediction, label);
  if (task == "code_debug") return code_debug(prediction, label);
  if (task == "longdialogue_qa_eng") return longdialogue_qa(prediction, label);
  if (task == "longbook_qa_eng") return best_of(prediction, label, qa_f1);
  if (task == "longbook_qa_chn") return best_of(prediction, label, character_f1);
  if (task == "longbook_sum_eng") return best_of(prediction, label, summary);
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

// The label with its type: extras.label, or the references, a number where the task wants numbers.
json label_from(const MetricInput& input, const std::string& task) {
  const auto given = input.extras.find("label");
  if (given != input.extras.end()) return *given;
  const auto as_number = [](const std::string& text) {
    const json value = json::parse(text, nullptr, false);
    return value.is_number() || value.is_array() ? value : json(text);
  };
  json label = json::array();
  for (const std::string& reference : input.references) {
    const bool number = task == "math_find" || task == "math_calc" || task == "code_run";
    label.push_back(number ? as_number(reference) : json(reference));
  }
  const bool single = task == "passkey" || task == "number_string" || task == "kv_retrieval" || task == "math_find" ||
                      task == "code_run" || (task == "math_calc" && !label.empty() && label[0].is_array());
  return single && !label.empty() ? label[0] : label;
}

MetricScore score_infinitebench(const MetricInput& input) {
  const std::string task = input.extras.value("task", "");
  return {
      score_task(task, input.prediction, label_from(input, task), input.extras.value("model_name", "generic")), {}, {}};
}

json recompute(const json& row, const VectorContext&) {
  return {{"expected", score_task(row.at("task").get<std::string>(), row.at("prediction").get_ref<const std::string&>(),
                                  row.at("label"), row.value("model_name", "generic"))}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "infinitebench",
     .title = "InfiniteBench official score",
     .summary = "The scorer of extras.task. Label: extras.label with its JSON type, else the references. Where the "
                "official code raises (a decimal answer to an integer label, an empty choice) the score is 0.",
     .source = "OpenBMB/InfiniteBench @88b3daa6 src/compute_scores.py",
     .score = score_infinitebench,
     .vectors = {{"infinitebench", recompute}}});

}  // namespace kvarena::metrics
