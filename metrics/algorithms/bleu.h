#pragma once
// BLEU of one sentence against one reference, as the package nltk computes it.

#include <string>
#include <vector>

namespace kvarena::metrics {

/// sentence_bleu of nltk 3.9 up to 4-grams with equal weights, smoothed by its method 4: an order without a match
/// counts as ln(words) / (5 * 2^k) matches, k being 1 for the first of them, 2 for the next. 0 without a common word.
[[nodiscard]] double sentence_bleu(const std::vector<std::string>& prediction,
                                   const std::vector<std::string>& reference);

/// sentence_bleu of nltk 3.9 with all weight on n-grams of `n` words, not smoothed: the share of the prediction's that
/// the reference has, times the penalty of a prediction that is too short. Next to 0 without a common n-gram, 0 without
/// a common word.
[[nodiscard]] double ngram_bleu(const std::vector<std::string>& prediction, const std::vector<std::string>& reference,
                                size_t n);

}  // namespace kvarena::metrics
