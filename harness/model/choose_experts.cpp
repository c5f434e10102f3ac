// Routing of a token to experts: by a softmax (over the chosen ones where weights are normalised) or sigmoids, with a
// correction or without, among all experts or those of the best groups.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "harness/model/feed_forward.h"

namespace kvarena {
namespace {

std::vector<float> router_scores(const ExpertConfig& config, std::span<const float> logits) {
  std::vector<float> scores(logits.begin(), logits.end());
  if (config.sigmoid_scores) {
    for (float& score : scores) score = 1.0F / (1.0F + std::exp(-score));
    return scores;
  }
  const float most = *std::ranges::max_element(scores);
  for (float& score : scores) score = std::exp(score - most);
  const float sum = std::accumulate(scores.begin(), scores.end(), 0.0F);
  for (float& score : scores) score /= sum;
  return scores;
}

/// The `count` largest, ties to the lower index, as ascending indices.
std::vector<int64_t> largest(std::span<const float> values, int64_t count) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{}, [&](int64_t i) { return values[i]; });
  order.resize(static_cast<size_t>(count));
  std::ranges::sort(order);
  return order;
}

/// Score of a group: in V2 its best expert's, in V3 the sum of its two best.
float group_score(const ExpertConfig& config, std::span<const float> members) {
  std::vector<float> best(members.begin(), members.end());
  std::ranges::sort(best, std::greater{});
  return config.sigmoid_scores && best.size() > 1 ? best[0] + best[1] : best[0];
}

/// Sets the scores of experts outside the best groups to minus infinity.
void keep_best_groups(const ExpertConfig& config, std::vector<float>& choice) {
  if (config.groups_per_token == config.groups) return;
  const int64_t size = config.experts / config.groups;
  std::vector<float> groups;
  for (int64_t g = 0; g < config.groups; ++g) {
    groups.push_back(group_score(config, std::span(choice).subspan(g * size, size)));
  }
  const std::vector<int64_t> kept = largest(groups, config.groups_per_token);
  for (int64_t g = 0; g < config.groups; ++g) {
    if (std::ranges::binary_search(kept, g)) continue;
    std::fill_n(choice.begin() + g * size, size, -std::numeric_limits<float>::infinity());
  }
}

}  // namespace

std::vector<ChosenExpert> choose_experts(const ExpertConfig& config, std::span<const float> logits,
                                         std::span<const float> correction) {
  const std::vector<float> scores = router_scores(config, logits);
  std::vector<float> choice = scores;
  for (size_t i = 0; i < correction.size(); ++i) choice[i] += correction[i];
  keep_best_groups(config, choice);
  std::vector<ChosenExpert> chosen;
  float sum = 0;
  for (const int64_t expert : largest(choice, config.experts_per_token)) {
    chosen.push_back({.expert = expert, .weight = scores[expert]});
    sum += scores[expert];
  }
  for (ChosenExpert& one : chosen) {
    if (config.normalize_weights) one.weight /= sum;
    one.weight *= static_cast<float>(config.weight_scale);
  }
  return chosen;
}

}  // namespace kvarena
