#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "harness/core/error.h"
#include "metrics/algorithms/regex.h"
#include "metrics/algorithms/rouge.h"
#include "metrics/registry.h"
#include "metrics/text/qa_f1.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

constexpr StoredMetric kRouge1{"zero_scrolls_rouge_1", "ZeroSCROLLS, ROUGE-1"},
    kRouge2{"zero_scrolls_rouge_2", "ZeroSCROLLS, ROUGE-2"}, kRougeL{"zero_scrolls_rouge_l", "ZeroSCROLLS, ROUGE-L"};

/// Small letters from ß to ſ, and what the package Unidecode makes of them.
constexpr std::pair<std::u32string_view, const char*> kLatin[] = {
    {U"àáâãäåāăą", "a"}, {U"æ", "ae"},    {U"çćĉċč", "c"},      {U"ðďđ", "d"},   {U"èéêëēĕėęě", "e"},
    {U"ĝğġģ", "g"},      {U"ĥħ", "h"},    {U"ìíîïĩīĭįı", "i"},  {U"ĳ", "ij"},    {U"ĵ", "j"},
    {U"ķĸ", "k"},        {U"ĺļľŀł", "l"}, {U"ñńņň", "n"},       {U"ŉ", "'n"},    {U"ŋ", "ng"},
    {U"òóôõöøōŏő", "o"}, {U"œ", "oe"},    {U"ŕŗř", "r"},        {U"śŝşšſ", "s"}, {U"ß", "ss"},
    {U"ţťŧ", "t"},       {U"þ", "th"},    {U"ùúûüũūŭůűų", "u"}, {U"ŵ", "w"},     {U"ýÿŷ", "y"},
    {U"źżž", "z"}};

std::string without_accents(const std::string& word) {
  std::string plain;
  for (const char32_t c : decode_utf8(word)) {
    const auto* const letter =
        std::ranges::find_if(kLatin, [&](const auto& row) { return row.first.find(c) != row.first.npos; });
    if (letter == std::end(kLatin)) {
      append_utf8(plain, c);
    } else {
      plain += letter->second;
    }
  }
  return plain;
}

MetricScore f1(std::string_view prediction, std::string_view reference) {
  const auto words = [](std::string_view text) {
    std::vector<std::string> all = normalized_words(text);
    std::ranges::transform(all, all.begin(), without_accents);
    return all;
  };
  return {bag_f1(words(prediction), words(reference)).f, {}, {}};
}

MetricScore rouge(std::string_view prediction, std::string_view reference) {
  const double one = google_rouge_n(prediction, reference, 1, false).f;
  const double two = google_rouge_n(prediction, reference, 2, false).f;
  const double longest = google_rouge_l(prediction, reference, false).f;
  return {std::cbrt(one * two * longest), {{kRouge1.name, one}, {kRouge2.name, two}, {kRougeL.name, longest}}, {}};
}

MetricScore letter(std::string_view prediction, std::string_view reference) {
  static const Regex kLetter(R"(\b[A-D]\b)");
  const RegexMatch said = kLetter.search(prediction), wanted = kLetter.search(reference);
  return {!said.empty() && !wanted.empty() && said[0] == wanted[0] ? 1.0 : 0.0, {}, {}};
}

MetricScore percentage(std::string_view prediction, std::string_view reference) {
  static const Regex kPercentage(R"((\d+\.?\d*)%)");
  const auto of = [](std::string_view text) {
    const RegexMatch match = kPercentage.search(text);
    if (match.empty()) return std::nan("");
    std::string digits;
    for (const char32_t c : decode_utf8(match[1]))
      digits += c == U'.' ? '.' : static_cast<char>('0' + decimal_value(c));
    return std::strtod(digits.c_str(), nullptr);
  };
  const double distance = std::abs(of(prediction) - of(reference));
  return {std::isnan(distance) ? 0.0 : std::pow(0.5, distance / 10), {}, {}};
}

/// The numbers of a list, by position: of any text what digits, commas and blanks it has.
std::vector<int64_t> numbers(std::string_view text) {
  static const Regex kOther(R"([^0-9\s,])");
  const std::string kept = kOther.sub(text, [](const RegexMatch&) { return std::string(); });
  std::vector<int64_t> all;
  for (const std::string& word : split_white_space(replace_all(kept, ",", " "))) {
    const bool number = word.size() < 18 && std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
    all.push_back(number ? std::stoll(word) : -1);
  }
  return all;
}

/// Share of the pairs that have the reference's order, of lists of the same numbers.
MetricScore order(std::string_view prediction, std::string_view reference) {
  const std::vector<int64_t> said = numbers(prediction), wanted = numbers(reference);
  if (!std::ranges::is_permutation(said, wanted)) return {};
  const auto place = [](const std::vector<int64_t>& list, int64_t number) { return std::ranges::find(list, number); };
  double pairs = 0, alike = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      ++pairs;
      alike += place(said, wanted[j]) < place(said, wanted[i]) ? 1 : 0;
    }
  }
  return {pairs > 0 ? alike / pairs : 0, {}, {}};
}

using Score = MetricScore (*)(std::string_view prediction, std::string_view reference);
constexpr std::pair<std::string_view, Score> kScores[] = {{"gov_report", rouge},
                                                          {"summ_screen_fd", rouge},
                                                          {"qmsum", rouge},
                                                          {"squality", rouge},
                                                          {"qasper", f1},
                                                          {"narrative_qa", f1},
                                                          {"musique", f1},
                                                          {"quality", letter},
                                                          {"space_digest", percentage},
                                                          {"book_sum_sort", order}};

/// The best of the references; of ROUGE's three values each one's, as there.
MetricScore score(const MetricInput& input) {
  const std::string task = input.extras.value("task", "");
  const auto* const found = std::ranges::find(kScores, task, &std::pair<std::string_view, Score>::first);
  if (found == std::end(kScores)) {
    fail({.place = "metric \"zero_scrolls\": extras.task", .found = task, .expected = "a task of ZeroSCROLLS"});
  }
  MetricScore best;
  for (const std::string& reference : input.references) {
    const MetricScore one = found->second(input.prediction, reference);
    best.score = std::max(best.score, one.score);
    for (const auto& [name, value] : one.values) best.values[name] = std::max(best.values[name], value);
  }
  if (!best.values.empty()) {
    best.score = std::cbrt(best.values[kRouge1.name] * best.values[kRouge2.name] * best.values[kRougeL.name]);
  }
  return best;
}

}  // namespace

KVARENA_METRIC(
    {.id = "zero_scrolls",
     .title = "ZeroSCROLLS",
     .summary =
         "By extras.task: the geometric mean of ROUGE-1, 2 and L of rouge_score without stems, of each sample (the "
         "leaderboard takes that of their means, which are stored beside it); F1 of words, Latin letters without their "
         "accents, where the official code calls Unidecode; whether the first letter A to D is the reference's; "
         "0.5^(distance/10) of percentages; the share of pairs in order. Best over the references.",
     .source = "tau/zero_scrolls (Hugging Face) metrics/zero_scrolls.py and the files beside it",
     .score = score,
     .stored = {kRouge1, kRouge2, kRougeL}});

}  // namespace kvarena::metrics
