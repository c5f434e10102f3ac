#include "harness/storage/placement/important_chunks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvarena::storage {

double random_similarity(double keep) { return keep / (2 - keep); }

double agreement_threshold(double keep, double alpha) { return std::pow(random_similarity(keep), alpha); }

std::vector<int64_t> top_tokens(std::span<const float> scores, int64_t count) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  order.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, static_cast<int64_t>(order.size()))));
  std::ranges::sort(order);
  return order;
}

double jaccard(std::span<const int64_t> a, std::span<const int64_t> b) {
  std::vector<int64_t> both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  const auto united = a.size() + b.size() - both.size();
  return united == 0 ? 1 : static_cast<double>(both.size()) / static_cast<double>(united);
}

std::optional<std::vector<int64_t>> shared_important(std::span<const float> scores, int64_t probe_heads, double keep,
                                                     double alpha) {
  const auto tokens = static_cast<int64_t>(scores.size()) / probe_heads;
  const auto count = std::llround(keep * static_cast<double>(tokens));
  std::vector<std::vector<int64_t>> tops;
  for (int64_t head = 0; head < probe_heads; ++head) {
    tops.push_back(top_tokens(scores.subspan(static_cast<size_t>(head * tokens), static_cast<size_t>(tokens)), count));
  }
  double similarity = 0;
  int64_t pairs = 0;
  for (size_t a = 0; a < tops.size(); ++a) {
    for (size_t b = a + 1; b < tops.size(); ++b, ++pairs) similarity += jaccard(tops[a], tops[b]);
  }
  if (pairs > 0 && similarity / static_cast<double>(pairs) <= agreement_threshold(keep, alpha)) return std::nullopt;

  std::vector<int64_t> votes(static_cast<size_t>(tokens), 0);
  for (const auto& top : tops) {
    for (const int64_t token : top) ++votes[static_cast<size_t>(token)];
  }
  std::vector<double> mean(static_cast<size_t>(tokens), 0);
  for (size_t i = 0; i < scores.size(); ++i) mean[i % static_cast<size_t>(tokens)] += scores[i];
  std::vector<int64_t> order(static_cast<size_t>(tokens));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](int64_t a, int64_t b) { return votes[a] != votes[b] ? votes[a] > votes[b] : mean[a] > mean[b]; });
  order.resize(static_cast<size_t>(count));
  std::ranges::sort(order);
  return order;
}

std::vector<int64_t> chunks_holding(std::span<const int64_t> important, int64_t chunk) {
  std::vector<int64_t> chunks;
  for (const int64_t token : important) {
    if (chunks.empty() || chunks.back() != token / chunk) chunks.push_back(token / chunk);
  }
  return chunks;
}

ImportantReads important_reads(int64_t heads, int64_t probe_heads, int64_t tokens, int64_t important) {
  return {.all_heads = heads * tokens + heads * important, .probed = probe_heads * tokens + 2 * heads * important};
}

}  // namespace kvarena::storage
