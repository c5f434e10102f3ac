#include "harness/serve/token_scores.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvarena::serve {
namespace {

TEST(TokenScores, AreLogarithmsOfTheSoftmax) {
  const std::vector<float> logits = {std::log(1.0F), std::log(4.0F), std::log(2.0F), std::log(1.0F)};
  const TokenScore score = score_token(logits, 2, 3);
  EXPECT_NEAR(score.log_probability, std::log(0.25), 1e-6);
  ASSERT_EQ(score.likeliest.size(), 3U);
  EXPECT_EQ(score.likeliest[0].first, 1);
  EXPECT_NEAR(score.likeliest[0].second, std::log(0.5), 1e-6);
  EXPECT_EQ(score.likeliest[1].first, 2);
  EXPECT_EQ(score.likeliest[2].first, 0);  // of equals the lower id
  EXPECT_EQ(score_token(logits, 0, 9).likeliest.size(), 4U);
  EXPECT_TRUE(score_token(logits, 0, 0).likeliest.empty());
}

TEST(TokenScores, PendingRowsMeetTheirTokensInOrder) {
  PendingScores pending(1);
  pending.add(std::vector<float>{0, 5});
  pending.add(std::vector<float>{5, 0});
  pending.add(std::vector<float>{0, 0});
  const std::vector<TokenScore> first = pending.take(std::vector<int32_t>{1, 1});
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].likeliest[0].first, 1);
  EXPECT_EQ(first[1].likeliest[0].first, 0);
  EXPECT_NEAR(first[1].log_probability, -5 - std::log1p(std::exp(-5)), 1e-12);
  EXPECT_NEAR(pending.take(std::vector<int32_t>{0})[0].log_probability, -std::log(2), 1e-12);
}

}  // namespace
}  // namespace kvarena::serve
