#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/error.h"
#include "metrics/algorithms/rouge.h"
#include "metrics/registry.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

struct NeedleScores {
  RougeScore rouge_1;               // google, stemmed, needle as reference
  RougeScore rouge_l;               // the same
  RougeScore needle_as_hypothesis;  // pltrdy ROUGE-L with the roles exchanged, as kvpress has it
  double word_overlap = 0;          // FranxYao's plot
  bool needle_in_response = false;  // case-sensitive
  bool phrase_in_response = false;  // case-sensitive, the answer without its full stop
  bool phrase_any_case = false;     // without regard to case, as RULER's string_match
  bool phrase_found = false;        // without regard to case and kind of white space
};

std::string_view phrase_of(std::string_view answer) {
  std::string_view phrase = strip(answer);
  while (phrase.ends_with('.')) phrase.remove_suffix(1);
  return phrase;
}

double word_overlap(std::string_view response, std::string_view answer) {
  const auto wanted = split_white_space(lower(answer));
  const auto given = split_white_space(lower(response));
  const std::set<std::string> wanted_set(wanted.begin(), wanted.end());
  size_t common = 0;
  for (const auto& word : std::set<std::string>(given.begin(), given.end())) common += wanted_set.count(word);
  return wanted.empty() ? 0.0 : static_cast<double>(common) / static_cast<double>(wanted.size());
}

NeedleScores needle_scores(std::string_view response, std::string_view answer, std::string_view needle) {
  NeedleScores scores;
  scores.rouge_1 = google_rouge_n(response, needle, 1, true);
  scores.rouge_l = google_rouge_l(response, needle, true);
  scores.needle_as_hypothesis = pltrdy_rouge_l(strip(needle), response);
  scores.word_overlap = word_overlap(response, answer);
  scores.needle_in_response = contains(response, strip(needle));
  scores.phrase_in_response = contains(response, phrase_of(answer));
  scores.phrase_any_case = contains(lower(response), lower(phrase_of(answer)));
  scores.phrase_found = contains(lower(collapse_white_space(response)), lower(collapse_white_space(phrase_of(answer))));
  return scores;
}

double chosen_score(const MetricScore& score, const nlohmann::json& extras) {
  const std::string name = extras.value("score", "substring");
  const auto found = score.values.find(name);
  if (found != score.values.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, value] : score.values) names.push_back(known);
  fail({.place = "metric \"needle\": extras.score",
        .found = fmt::format("\"{}\"", name),
        .expected = fmt::format("one of {}", fmt::join(names, ", ")),
        .nearest = nearest_name(name, names)});
}

MetricScore score_needle(const MetricInput& input) {
  if (input.references.empty()) {
    fail({.place = "metric \"needle\": references",
          .found = "none",
          .expected = "the phrase that answers the question"});
  }
  const std::string& answer = input.references.front();
  const std::string needle = input.extras.value("needle", answer);
  const NeedleScores scores = needle_scores(input.prediction, answer, needle);
  MetricScore result;
  result.values = {{"substring", scores.phrase_found},
                   {"substring_case_sensitive", scores.phrase_in_response},
                   {"substring_any_case", scores.phrase_any_case},
                   {"needle_substring", scores.needle_in_response},
                   {"rouge_1", scores.rouge_1.f},
                   {"rouge_l", scores.rouge_l.f},
                   {"word_overlap", scores.word_overlap},
                   {"needle_as_hypothesis", scores.needle_as_hypothesis.f}};
  result.score = chosen_score(result, input.extras);
  return result;
}

nlohmann::json recompute(const nlohmann::json& row, const VectorContext&) {
  const NeedleScores s = needle_scores(row.at("response").get_ref<const std::string&>(),
                                       row.at("expected_answer").get_ref<const std::string&>(),
                                       row.at("needle").get_ref<const std::string&>());
  const RougeScore& swapped = s.needle_as_hypothesis;
  const nlohmann::json swapped_scores = {{"r", swapped.recall}, {"p", swapped.precision}, {"f", swapped.f}};
  return {{"expected_answer", row.at("expected_answer")},  // an input, whatever its name
          {"expected_rouge1_f_times_10", 10 * s.rouge_1.f},
          {"expected_rougeL_f", s.rouge_l.f},
          {"expected_word_overlap", s.word_overlap},
          {"expected_pltrdy_rouge_l_needle_as_hypothesis", swapped.defined ? swapped_scores : nlohmann::json()},
          {"expected_substring", s.needle_in_response},
          {"expected_substring_answer", s.phrase_in_response},
          {"expected_substring_answer_any_case", s.phrase_any_case}};
}

}  // namespace

KVARENA_METRIC(
    {.id = "needle",
     .title = "Needle in a haystack",
     .summary =
         "1 when the answer phrase (the first reference, without its full stop) occurs in the response, "
         "case and white space aside. Beside it: ROUGE-1 and ROUGE-L of google rouge_score to the whole "
         "needle (extras.needle), word overlap, substrings case-sensitive and, as RULER has it, without regard to "
         "case alone. extras.score picks another of these as the score.",
     .source = "gkamradt/LLMTest_NeedleInAHaystack @7b90d285; FranxYao/Long-Context-Data-Engineering; "
               "NVIDIA/kvpress; NVIDIA/RULER @c3f5e3b4 string_match_all; the default is kvarena's",
     .score = score_needle,
     .vectors = {{"niah_scores", recompute}}});

}  // namespace kvarena::metrics
