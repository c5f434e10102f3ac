#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "metrics/algorithms/lcs.h"
#include "metrics/algorithms/porter.h"
#include "metrics/algorithms/rouge.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

std::vector<std::string> tokens_of(std::string_view text, bool stem) {
  std::vector<std::string> tokens;
  std::string token;
  const auto finish = [&] {
    if (token.empty()) return;
    tokens.push_back(stem && token.size() > 3 ? porter_stem(token) : token);
    token.clear();
  };
  for (const char c : lower(text)) {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      token.push_back(c);
    } else {
      finish();
    }
  }
  finish();
  return tokens;
}

RougeScore score_of(double precision, double recall) {
  const double f = precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0.0;
  return {.precision = precision, .recall = recall, .f = f};
}

std::map<std::vector<std::string>, int64_t> count_ngrams(const std::vector<std::string>& tokens, int n) {
  std::map<std::vector<std::string>, int64_t> counts;
  for (size_t i = 0; i + static_cast<size_t>(n) <= tokens.size(); ++i) {
    const auto first = tokens.begin() + static_cast<int64_t>(i);
    ++counts[std::vector<std::string>(first, first + n)];
  }
  return counts;
}

std::vector<std::vector<int>> lines_as_ids(std::string_view text, bool stem, Vocabulary& vocabulary) {
  std::vector<std::vector<int>> lines;
  for (const std::string& line : split_on(text, "\n")) {
    if (!line.empty()) lines.push_back(vocabulary.ids(tokens_of(line, stem)));
  }
  return lines;
}

std::map<int, int64_t> count_words(const std::vector<std::vector<int>>& lines) {
  std::map<int, int64_t> counts;
  for (const auto& line : lines) {
    for (const int word : line) ++counts[word];
  }
  return counts;
}

}  // namespace

RougeScore google_rouge_n(std::string_view prediction, std::string_view reference, int n, bool stem) {
  const auto predicted = count_ngrams(tokens_of(prediction, stem), n);
  const auto wanted = count_ngrams(tokens_of(reference, stem), n);
  int64_t overlap = 0;
  int64_t predicted_total = 0;
  int64_t wanted_total = 0;
  for (const auto& [gram, count] : predicted) predicted_total += count;
  for (const auto& [gram, count] : wanted) {
    wanted_total += count;
    const auto found = predicted.find(gram);
    if (found != predicted.end()) overlap += std::min(count, found->second);
  }
  return score_of(static_cast<double>(overlap) / static_cast<double>(std::max<int64_t>(predicted_total, 1)),
                  static_cast<double>(overlap) / static_cast<double>(std::max<int64_t>(wanted_total, 1)));
}

RougeScore google_rouge_l(std::string_view prediction, std::string_view reference, bool stem) {
  Vocabulary vocabulary;
  const auto predicted = vocabulary.ids(tokens_of(prediction, stem));
  const auto wanted = vocabulary.ids(tokens_of(reference, stem));
  if (predicted.empty() || wanted.empty()) return score_of(0, 0);
  const auto length = static_cast<double>(lcs_length(wanted, predicted));
  return score_of(length / static_cast<double>(predicted.size()), length / static_cast<double>(wanted.size()));
}

RougeScore google_rouge_lsum(std::string_view prediction, std::string_view reference, bool stem) {
  Vocabulary vocabulary;
  const auto predicted = lines_as_ids(prediction, stem, vocabulary);
  const auto wanted = lines_as_ids(reference, stem, vocabulary);
  auto predicted_left = count_words(predicted);
  auto wanted_left = count_words(wanted);
  size_t predicted_total = 0;
  size_t wanted_total = 0;
  for (const auto& line : predicted) predicted_total += line.size();
  for (const auto& line : wanted) wanted_total += line.size();
  if (predicted_total == 0 || wanted_total == 0) return score_of(0, 0);
  int64_t hits = 0;
  for (const auto& w : wanted) {
    std::set<int64_t> positions;  // of this reference line that some predicted line's LCS covers
    for (const auto& p : predicted) {
      const LcsPath path = lcs_path(w, p, Tie::drop_x);
      positions.insert(path.positions.begin(), path.positions.end());
    }
    for (const int64_t i : positions) {
      const int word = w[static_cast<size_t>(i)];
      if (predicted_left[word] <= 0 || wanted_left[word] <= 0) continue;
      ++hits;
      --predicted_left[word];
      --wanted_left[word];
    }
  }
  return score_of(static_cast<double>(hits) / static_cast<double>(predicted_total),
                  static_cast<double>(hits) / static_cast<double>(wanted_total));
}

}  // namespace kvarena::metrics
