#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "metrics/algorithms/lcs.h"
#include "metrics/algorithms/rouge.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

// Words of each sentence. A piece of white space alone is a sentence of one empty word, as "".split(" ") gives.
std::vector<std::vector<std::string>> sentences_of(std::string_view text) {
  std::vector<std::vector<std::string>> sentences;
  for (const std::string& piece : split_on(text, ".")) {
    if (!piece.empty()) sentences.push_back(split_on(collapse_white_space(piece), " "));
  }
  return sentences;
}

double f_of(double precision, double recall) { return 2.0 * ((precision * recall) / (precision + recall + 1e-8)); }

using Sentences = std::vector<std::vector<int>>;

Sentences with_ids(const std::vector<std::vector<std::string>>& sentences, Vocabulary& vocabulary) {
  Sentences out;
  for (const auto& words : sentences) out.push_back(vocabulary.ids(words));
  return out;
}

size_t distinct_words(const Sentences& sentences) {
  std::set<int> words;
  for (const auto& sentence : sentences) words.insert(sentence.begin(), sentence.end());
  return words.size();
}

std::set<std::vector<int>> ngrams_of(const Sentences& sentences, int n) {
  std::vector<int> words;
  for (const auto& sentence : sentences) words.insert(words.end(), sentence.begin(), sentence.end());
  std::set<std::vector<int>> grams;
  for (size_t i = 0; i + static_cast<size_t>(n) <= words.size(); ++i) {
    grams.emplace(words.begin() + static_cast<int64_t>(i), words.begin() + static_cast<int64_t>(i) + n);
  }
  return grams;
}

}  // namespace

RougeScore pltrdy_rouge_l(std::string_view prediction, std::string_view reference) {
  Vocabulary vocabulary;
  const Sentences predicted = with_ids(sentences_of(prediction), vocabulary);
  const Sentences wanted = with_ids(sentences_of(reference), vocabulary);
  RougeScore score;
  if (predicted.empty() || wanted.empty()) {
    score.defined = false;
    return score;
  }
  std::set<int> common;  // the union, over all pairs of sentences, of the words of one LCS
  for (const auto& r : wanted) {
    for (const auto& p : predicted) {
      const LcsPath path = lcs_path(r, p, Tie::drop_y);
      score.backtrack_steps = std::max(score.backtrack_steps, path.steps);
      for (const int64_t i : path.positions) common.insert(r[static_cast<size_t>(i)]);
    }
  }
  const auto hits = static_cast<double>(common.size());
  score.precision = hits / static_cast<double>(distinct_words(predicted));
  score.recall = hits / static_cast<double>(distinct_words(wanted));
  score.f = f_of(score.precision, score.recall);
  return score;
}

RougeScore pltrdy_rouge_n(std::string_view prediction, std::string_view reference, int n) {
  Vocabulary vocabulary;
  const Sentences predicted = with_ids(sentences_of(prediction), vocabulary);
  const Sentences wanted = with_ids(sentences_of(reference), vocabulary);
  RougeScore score;
  if (predicted.empty() || wanted.empty()) {
    score.defined = false;
    return score;
  }
  const auto predicted_grams = ngrams_of(predicted, n);
  const auto wanted_grams = ngrams_of(wanted, n);
  const auto overlap = static_cast<double>(std::count_if(
      predicted_grams.begin(), predicted_grams.end(), [&](const auto& gram) { return wanted_grams.contains(gram); }));
  score.precision = predicted_grams.empty() ? 0.0 : overlap / static_cast<double>(predicted_grams.size());
  score.recall = wanted_grams.empty() ? 0.0 : overlap / static_cast<double>(wanted_grams.size());
  score.f = f_of(score.precision, score.recall);
  return score;
}

}  // namespace kvarena::metrics
