#include "harness/method/selection.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvarena {

std::vector<int32_t> select_best(std::span<const float> scores, int64_t budget, Protection protection) {
  const auto n = static_cast<int64_t>(scores.size());
  std::vector<int32_t> kept(static_cast<size_t>(n));
  std::iota(kept.begin(), kept.end(), 0);
  if (budget >= n) return kept;

  const int64_t sinks = std::min(protection.sinks, budget);
  const int64_t recent = std::min(protection.recent, budget - sinks);
  // [sinks][candidates, best first up to the budget][recent]
  const auto first = kept.begin() + sinks;
  const auto last = kept.end() - recent;
  const auto chosen = first + (budget - sinks - recent);
  std::nth_element(first, chosen, last,
                   [&](int32_t a, int32_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
  kept.erase(chosen, last);
  std::ranges::sort(kept);
  return kept;
}

int64_t find_nan(std::span<const float> scores) {
  const auto it = std::ranges::find_if(scores, [](float score) { return std::isnan(score); });
  return it == scores.end() ? -1 : it - scores.begin();
}

}  // namespace kvarena
