#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/algorithms/regex.h"
#include "metrics/registry.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

constexpr std::string_view kInvalid = "[invalid]";

// The first number after "#### ", commas removed.
std::string extract_official(std::string_view text) {
  static const Regex kAnswer(R"(#### (\-?[0-9\.\,]+))");
  const RegexMatch match = kAnswer.search(text);
  return match.empty() ? std::string(kInvalid) : replace_all(strip(match[1]), ",", "");
}

// lm-evaluation-harness, flexible-extract: the last number, then its regexes_to_ignore ("," "$" and a final ".").
std::string extract_last_number(std::string_view text) {
  static const Regex kNumber(R"((-?[$0-9.,]{2,})|(-?[0-9]+))");
  const auto matches = kNumber.find_all(text);
  if (matches.empty()) return std::string(kInvalid);
  std::string number = replace_all(replace_all(matches.back()[0], ",", ""), "$", "");
  if (number.ends_with('.')) number.pop_back();
  return number;
}

std::string extract(std::string_view text, const nlohmann::json& extras) {
  const std::string name = extras.value("extraction", "official");
  if (name == "official") return extract_official(text);
  if (name == "last_number") return extract_last_number(text);
  fail({.place = "metric \"gsm8k\": extras.extraction",
        .found = fmt::format("\"{}\"", name),
        .expected = "\"official\" or \"last_number\"",
        .nearest = nearest_name(name, {"official", "last_number"})});
}

// Data files give the whole worked answer; tables of answers give the number alone.
std::string gold_of(const std::string& reference) {
  const std::string marked = extract_official(reference);
  return marked == kInvalid ? replace_all(strip(reference), ",", "") : marked;
}

MetricScore score_gsm8k(const MetricInput& input) {
  MetricScore score;
  const std::string answer = extract(input.prediction, input.extras);
  for (const std::string& reference : input.references) {
    if (answer != kInvalid && answer == gold_of(reference)) score.score = 1;
  }
  score.notes = {{"answer", answer}, {"extraction", input.extras.value("extraction", "official")}};
  return score;
}

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const std::string answer = extract_official(row.at("completion").get_ref<const std::string&>());
  const std::string gold = extract_official(row.at("gold_answer").get_ref<const std::string&>());
  return {{"expected_extracted", answer}, {"expected", answer != kInvalid && answer == gold}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "gsm8k",
     .title = "GSM8K exact answer",
     .summary = "1 when the extracted number equals the gold one as a string (7.0 is not 7). extras.extraction: "
                "official (first number after \"#### \", default) or last_number (flexible-extract of "
                "lm-evaluation-harness).",
     .source = "openai/grade-school-math @3101c7d5 dataset.py",
     .score = score_gsm8k,
     .vectors = {{"gsm8k", recompute}}});

}  // namespace kvarena::metrics
