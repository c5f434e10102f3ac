#include "harness/model/likeliest.h"

#include <algorithm>
#include <numeric>

namespace kvarena {

std::vector<int32_t> likeliest(std::span<const float> logits, int64_t count) {
  if (count <= 0) return {};
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto last = order.begin() + std::min(count, std::ssize(order));
  std::partial_sort(order.begin(), last, order.end(),
                    [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  order.erase(last, order.end());
  return order;
}

}  // namespace kvarena
