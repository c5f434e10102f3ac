#include "harness/method/selection.h"

#include <algorithm>
#include <numeric>

#include "harness/core/error.h"
#include "kernels/top_k/top_k.h"

namespace kvarena {

std::vector<int32_t> select_best(std::span<const float> scores, int64_t budget, Protection protection) {
  const auto n = static_cast<int64_t>(scores.size());
  const int64_t count = std::min(budget, n);
  std::vector<int32_t> kept(static_cast<size_t>(count));
  std::iota(kept.begin(), kept.end(), 0);
  if (count == n) return kept;

  // [sinks][the best candidates][recent]
  const int64_t sinks = std::min(protection.sinks, count);
  const int64_t recent = std::min(protection.recent, count - sinks);
  const int64_t wanted = count - sinks - recent;
  int32_t* const best = kept.data() + sinks;
  const int64_t found = kernels::top_k(scores.data() + sinks, n - sinks - recent, wanted, best);
  KVARENA_ASSERT(found == wanted, "a score that is not a number");
  for (int64_t i = 0; i < wanted; ++i) best[i] += static_cast<int32_t>(sinks);
  std::iota(kept.end() - recent, kept.end(), static_cast<int32_t>(n - recent));
  return kept;
}

}  // namespace kvarena
