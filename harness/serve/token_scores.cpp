#include "harness/serve/token_scores.h"

#include <fmt/format.h>

#include "harness/core/error.h"
#include "harness/model/likeliest.h"
#include "harness/model/log_sum_exp.h"

namespace kvarena::serve {

TokenScore score_token(std::span<const float> logits, int32_t token, int64_t count) {
  const double normaliser = log_sum_exp(logits);
  const auto log_probability = [&](int32_t id) { return logits[static_cast<size_t>(id)] - normaliser; };
  TokenScore score{.log_probability = log_probability(token), .likeliest = {}};
  for (const int32_t id : likeliest(logits, count)) score.likeliest.emplace_back(id, log_probability(id));
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
