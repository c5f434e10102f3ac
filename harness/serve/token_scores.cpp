#include "harness/serve/token_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/core/error.h"
#include "harness/model/log_sum_exp.h"

namespace kvarena::serve {

TokenScore score_token(std::span<const float> logits, int32_t token, int64_t count) {
  const double normaliser = log_sum_exp(logits);
  const auto log_probability = [&](int32_t id) { return logits[static_cast<size_t>(id)] - normaliser; };
  std::vector<int32_t> order(count == 0 ? 0 : logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto last = order.begin() + std::min<int64_t>(count, std::ssize(order));
  std::partial_sort(order.begin(), last, order.end(),
                    [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  TokenScore score{.log_probability = log_probability(token), .likeliest = {}};
  for (auto it = order.begin(); it != last; ++it) score.likeliest.emplace_back(*it, log_probability(*it));
  return score;
}

std::vector<TokenScore> PendingScores::take(std::span<const int32_t> tokens) {
  KVARENA_ASSERT(tokens.size() <= rows_.size(), fmt::format("{} tokens of {} rows", tokens.size(), rows_.size()));
  std::vector<TokenScore> scores;
  for (size_t i = 0; i < tokens.size(); ++i) scores.push_back(score_token(rows_[i], tokens[i], likeliest_));
  rows_.erase(rows_.begin(), rows_.begin() + std::ssize(tokens));
  return scores;
}

}  // namespace kvarena::serve
