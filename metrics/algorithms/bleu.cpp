#include "metrics/algorithms/bleu.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>

namespace kvarena::metrics {
namespace {

constexpr size_t kLongest = 4;    // words of an n-gram
constexpr double kSmoothing = 5;  // K of the package

std::map<std::vector<std::string>, int64_t> ngrams(std::span<const std::string> words, size_t n) {
  std::map<std::vector<std::string>, int64_t> counts;
  for (size_t i = 0; i + n <= words.size(); ++i) ++counts[{words.begin() + i, words.begin() + i + n}];
  return counts;
}

int64_t matches(std::span<const std::string> prediction, std::span<const std::string> reference, size_t n) {
  const auto wanted = ngrams(reference, n);
  int64_t found = 0;
  for (const auto& [words, count] : ngrams(prediction, n)) {
    const auto other = wanted.find(words);
    if (other != wanted.end()) found += std::min(count, other->second);
  }
  return found;
}

/// N-grams of a text of so many words, at least 1.
double ngrams_in(double words, size_t n) { return std::max(1.0, words - static_cast<double>(n) + 1); }

double brevity_penalty(double words, double length) { return words > length ? 1 : std::exp(1 - length / words); }

}  // namespace

double sentence_bleu(const std::vector<std::string>& prediction, const std::vector<std::string>& reference) {
  const auto words = static_cast<double>(prediction.size());
  double halvings = 1, sum = 0;
  for (size_t n = 1; n <= kLongest; ++n) {
    auto found = static_cast<double>(matches(prediction, reference, n));
    if (found == 0 && n == 1) return 0;
    if (found == 0) {
      if (words <= 1) continue;  // no smoothing, and orders of 0 are left out
      found = std::log(words) / (std::exp2(halvings++) * kSmoothing);
    }
    sum += std::log(found / ngrams_in(words, n)) / kLongest;
  }
  return std::exp(sum) * brevity_penalty(words, static_cast<double>(reference.size()));
}

double ngram_bleu(const std::vector<std::string>& prediction, const std::vector<std::string>& reference, size_t n) {
  if (matches(prediction, reference, 1) == 0) return 0;
  const auto words = static_cast<double>(prediction.size());
  const auto found = static_cast<double>(matches(prediction, reference, n));
  const double share = found > 0 ? found / ngrams_in(words, n) : std::numeric_limits<double>::min();
  return share * brevity_penalty(words, static_cast<double>(reference.size()));
}

}  // namespace kvarena::metrics
