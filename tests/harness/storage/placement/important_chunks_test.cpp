// The worked numbers of IMPRESS and of the method sheet.

#include "harness/storage/placement/important_chunks.h"

#include <gtest/gtest.h>

namespace kvarena::storage {
namespace {

TEST(ImportantChunks, ThresholdIsAPowerOfChance) {
  EXPECT_NEAR(random_similarity(0.25), 0.142857, 1e-6);
  EXPECT_NEAR(agreement_threshold(0.25, 0.6), 0.311129, 1e-6);
  EXPECT_NEAR(random_similarity(0.5), 0.333333, 1e-6);
  EXPECT_NEAR(agreement_threshold(0.5, 0.6), 0.517282, 1e-6);
}

TEST(ImportantChunks, HeadsThatAgreeVoteForAll) {
  // Three heads over eight tokens; a quarter is two tokens. All of them prefer tokens 0 and 5.
  const std::vector<float> same = {9, 0, 1, 0, 0, 8, 0, 0, 7, 0, 0, 0, 2, 9, 0, 0, 5, 1, 0, 0, 0, 6, 0, 0};
  const auto important = shared_important(same, 3, 0.25, 0.6);
  ASSERT_TRUE(important.has_value());
  EXPECT_EQ(*important, (std::vector<int64_t>{0, 5}));
}

TEST(ImportantChunks, VotesDecideBeforeScoresAndScoresBreakTies) {
  // Heads choose {0, 1}, {0, 1}, {0, 2}: similarity (1 + 1/3 + 1/3) / 3 = 0.56 is above 0.31. Then two heads each vote
  // for one of 1 and 2 beside 0, and the mean score decides.
  const std::vector<float> votes = {9, 8, 0, 0, 0, 0, 0, 0, 9, 8, 0, 0, 0, 0, 0, 0, 9, 0, 100, 0, 0, 0, 0, 0};
  EXPECT_EQ(shared_important(votes, 3, 0.25, 0.6), (std::vector<int64_t>{0, 1}));
  const std::vector<float> tie = {9, 8, 0, 0, 0, 0, 0, 0, 9, 0, 8.5, 0, 0, 0, 0, 0};
  EXPECT_EQ(shared_important(tie, 2, 0.25, 0.6), (std::vector<int64_t>{0, 2}));
}

TEST(ImportantChunks, HeadsThatDisagreeShareNothing) {
  const std::vector<float> apart = {9, 8, 0, 0, 0, 0, 0, 0, 0, 0, 9, 8, 0, 0, 0, 0};
  EXPECT_FALSE(shared_important(apart, 2, 0.25, 0.6).has_value());
}

TEST(ImportantChunks, NeighboursInAChunkComeAlong) {
  EXPECT_EQ(chunks_holding(std::vector<int64_t>{0, 5}, 4), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(chunks_holding(std::vector<int64_t>{0, 1}, 4), (std::vector<int64_t>{0}));  // reordered: one chunk
  EXPECT_TRUE(chunks_holding({}, 4).empty());
}

TEST(ImportantChunks, ReadsOfThePapersExample) {
  const ImportantReads reads = important_reads(32, 3, 4, 1);
  EXPECT_EQ(reads.all_heads, 160);
  EXPECT_EQ(reads.probed, 76);
}

}  // namespace
}  // namespace kvarena::storage
