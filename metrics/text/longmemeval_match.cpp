#include <algorithm>
#include <nlohmann/json.hpp>

#include "metrics/algorithms/regex.h"
#include "metrics/registry.h"
#include "metrics/text/qa_f1.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

/// "7 days. 8 days (including the last day) is also acceptable." as its two answers; others alone.
std::vector<std::string> accepted(const std::string& answer) {
  static const Regex kTwo(R"(^(.+?)\. (.+?)(?: \(.*\))? is also acceptable)");
  const RegexMatch two = kTwo.search(answer);
  if (two.empty()) return {answer};
  return {std::string(two[1]), std::string(two[2])};
}

bool says_unknown(std::string_view prediction) {
  static const Regex kUnknown(
      R"(\b(?:not|\w+n[’']t|never|cannot|no)\W+(?:\w+\W+){0,3}?)"
      R"((?:mention|know|inform|record|answer|determin|provid|specif|discuss|enough|stat|shar|said|say|told|tell|find|available))"
      R"(|\b(?:unanswerable|insufficient|unknown|incomplete|unclear)\b)");
  return !kUnknown.search(lower(prediction)).empty();
}

MetricScore score(const MetricInput& input) {
  if (contains(input.extras.value("question_id", ""), "_abs")) {
    return {says_unknown(input.prediction) ? 1.0 : 0.0, {}, {}};
  }
  const std::vector<std::string> said = normalized_words(input.prediction);
  const auto occurs = [&](const std::string& answer) {
    const std::vector<std::string> words = normalized_words(answer);
    return !words.empty() && !std::ranges::search(said, words).empty();
  };
  const auto is_given = [&](const std::string& reference) { return std::ranges::any_of(accepted(reference), occurs); };
  return {std::ranges::any_of(input.references, is_given) ? 1.0 : 0.0, {}, {}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "longmemeval_match",
     .title = "LongMemEval answer occurs",
     .summary =
         "Of this project, since the official verdict is a judge's (`judged_longmemeval`): 1 when the words of "
         "an answer occur one after the other in the prediction, after lower-casing and deleting ASCII "
         "punctuation and articles; for ids with _abs when the prediction says that something is not known. Less "
         "than a judge gives where answers are sentences, and 0 for rubrics of preferences.",
     .source = "kvarena; normalisation as SQuAD's",
     .score = score});

}  // namespace kvarena::metrics
