#include "harness/method/budget.h"

#include <gtest/gtest.h>

namespace kvarena {
namespace {

constexpr LayerShape kShape{.q_heads = 9, .kv_heads = 3, .head_dim = 64, .dtype = DType::bf16};

TEST(Budget, AFractionIsFlooredWithoutTheFloatingPointTrap) {
  // In doubles 10 * (1 - 0.9) is 0.9999...; keep 0.1 of 10 must be 1 entry, keep 0.2 of 5 likewise.
  EXPECT_EQ(Budget{.keep = 0.1}.capacity(10, kShape, 1), 1);
  EXPECT_EQ(Budget{.keep = 0.2}.capacity(5, kShape, 1), 1);
  EXPECT_EQ(Budget{.keep = 0.7}.capacity(10, kShape, 1), 7);
  EXPECT_EQ(Budget{.keep = 0.25}.capacity(1023, kShape, 1), 255);
}

TEST(Budget, IsNeverEmpty) { EXPECT_EQ(Budget{.keep = 0.01}.capacity(5, kShape, 1), 1); }

TEST(Budget, TokensMayExceedThePrompt) { EXPECT_EQ(Budget{.tokens = 512}.capacity(100, kShape, 30), 512); }

TEST(Budget, BytesCountPositionsOfKeptEntries) {
  const int64_t entry = kShape.entry_bytes() + 3 * 4;
  EXPECT_EQ(Budget{.bytes = 30 * 200 * entry}.capacity(1000, kShape, 30), 200);
  EXPECT_EQ(Budget{.bytes = 30 * 200 * entry - 1}.capacity(1000, kShape, 30), 199);
}

TEST(Budget, ExactlyOneMustBeGiven) {
  std::vector<std::string> problems;
  Budget{}.check("methods[0]", problems);
  Budget{.keep = 0.5, .tokens = 3}.check("methods[1]", problems);
  Budget{.tokens = 3}.check("methods[2]", problems);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_NE(problems[0].find("methods[0]: found no budget"), std::string::npos) << problems[0];
  EXPECT_NE(problems[1].find("several"), std::string::npos) << problems[1];
}

}  // namespace
}  // namespace kvarena
