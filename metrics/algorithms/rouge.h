#pragma once
// ROUGE as the two Python packages compute it. They differ in tokens, sentences, counting and the formula of F.

#include <cstdint>
#include <string_view>

namespace kvarena::metrics {

struct RougeScore {
  double precision = 0;
  double recall = 0;
  double f = 0;
  bool defined = true;          ///< false where the package raises: a text with nothing but dots, or nothing
  int64_t backtrack_steps = 0;  ///< longest LCS backtracking, which pltrdy's package does by recursion
};

/// Package `rouge` 1.0.1 (pltrdy/rouge @c1b90a78): summary-level ROUGE-L over *sets* of words, sentences cut at ".",
/// case and punctuation kept, F = 2PR/(P+R+1e-8). The package fails on backtracking of about 1000 steps (CPython's
/// recursion limit, metrics/text/rouge_l.h); this function does not.
[[nodiscard]] RougeScore pltrdy_rouge_l(std::string_view prediction, std::string_view reference);
/// ROUGE-N of that package, over sets of n-grams of the whole text. n >= 1.
[[nodiscard]] RougeScore pltrdy_rouge_n(std::string_view prediction, std::string_view reference, int n);

/// google-research `rouge_score`: lower-case [a-z0-9] tokens, with `stem` Porter-stemmed when longer than 3 letters.
/// ROUGE-N counts with multiplicity; F = 2PR/(P+R).
[[nodiscard]] RougeScore google_rouge_n(std::string_view prediction, std::string_view reference, int n, bool stem);
[[nodiscard]] RougeScore google_rouge_l(std::string_view prediction, std::string_view reference, bool stem);
/// rougeLsum: sentences are lines, union LCS with each word counted as often as both texts have it.
[[nodiscard]] RougeScore google_rouge_lsum(std::string_view prediction, std::string_view reference, bool stem);

}  // namespace kvarena::metrics
