#include "kernels/top_k/top_k.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/common/parallel.h"

namespace kvarena::kernels {
namespace {

/// Order-preserving key: larger score, larger key; -0 and 0 alike.
uint32_t key_of(float score) {
  const uint32_t u = std::bit_cast<uint32_t>(score + 0.0f);
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

}  // namespace

int64_t top_k(const float* scores, int64_t n, int64_t k, int32_t* index) {
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(scores[i])) return -1;
  }
  k = std::clamp<int64_t>(k, 0, n);
  if (k == 0) return 0;
  if (k == n) {
    for (int64_t i = 0; i < n; ++i) index[i] = static_cast<int32_t>(i);
    return n;
  }
  // The k-th largest key splits the row: everything above is in, and of its equals the first ones.
  static thread_local Scratch<uint32_t> scratch;
  uint32_t* keys = scratch.get(n);
  for (int64_t i = 0; i < n; ++i) keys[i] = key_of(scores[i]);
  std::nth_element(keys, keys + (k - 1), keys + n, std::greater<>());
  const uint32_t border = keys[k - 1];
  int64_t equal = k - std::count_if(keys, keys + (k - 1), [&](uint32_t key) { return key > border; });
  int64_t chosen = 0;
  for (int64_t i = 0; i < n && chosen < k; ++i) {
    const uint32_t key = key_of(scores[i]);
    if (key > border || (key == border && equal-- > 0)) index[chosen++] = static_cast<int32_t>(i);
  }
  return chosen;
}

int64_t top_k_rows(const float* scores, int64_t rows, int64_t n, int64_t score_stride, int64_t k, int32_t* index) {
  require(k >= 0 && k <= n, "top_k_rows: k must be between 0 and n");
  std::vector<int64_t> counts(static_cast<size_t>(rows));
  const auto one = [&](int64_t r) {
    counts[static_cast<size_t>(r)] = top_k(scores + r * score_stride, n, k, index + r * k);
  };
  constexpr int64_t kWorthThreads = 8192;  // scores
  if (rows * n >= kWorthThreads) {
    parallel_for(rows, one);
  } else {
    for (int64_t r = 0; r < rows; ++r) one(r);
  }
  const auto bad = std::find(counts.begin(), counts.end(), -1);
  return bad == counts.end() ? -1 : bad - counts.begin();
}

}  // namespace kvarena::kernels
