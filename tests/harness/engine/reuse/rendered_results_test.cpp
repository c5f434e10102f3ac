#include "harness/engine/reuse/rendered_results.h"

#include <gtest/gtest.h>

namespace kvarena {
namespace {

TEST(RenderedResults, AContentIsFoundWithoutTheBlanksAroundIt) {
  const std::string text = "<user>ask</user><tool>12 things</tool>";
  const auto whole = find_content(text, "ask", 0);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->place(1), whole->begin + 1);
  EXPECT_EQ(whole->end(), text.find("</user>"));
  const auto bare = find_content(text, "\n 12 things \n", whole->end());
  ASSERT_TRUE(bare);
  EXPECT_EQ(bare->begin, text.find("12"));
  EXPECT_EQ(bare->place(0), bare->begin) << "a blank that is gone";
  EXPECT_EQ(bare->place(3), bare->begin + 1);
  EXPECT_EQ(bare->place(100), bare->end());
  EXPECT_FALSE(find_content(text, "ask", whole->end()));
}

TEST(RenderedResults, AContentOfBlanksAloneHasNoBytes) {
  for (const char* content : {"", " \n "}) {
    const auto none = find_content("<tool></tool>", content, 6);
    ASSERT_TRUE(none);
    EXPECT_EQ(none->begin, 6U);
    EXPECT_EQ(none->end(), 6U);
  }
}

TEST(RenderedResults, TokensWithMoreThanBlanksBesideAResultAreNotItsOwn) {
  const std::string piece = "a: bcd\ne";  // as "a:", " bc", "d\n", "e"
  const std::vector<TextRange> ranges = {{0, 2}, {2, 5}, {5, 7}, {7, 8}};
  const auto tokens = [&](int64_t begin, int64_t end) {
    std::vector<ResultTokens> found;
    add_results(found, {{{begin, end}, "look"}}, piece, 0, ranges, 10);
    return found;
  };
  ASSERT_EQ(tokens(3, 6).size(), 1U);
  EXPECT_EQ(tokens(3, 6)[0].begin, 11);
  EXPECT_EQ(tokens(3, 6)[0].end, 13);
  EXPECT_EQ(tokens(3, 6)[0].tool, "look");
  EXPECT_EQ(tokens(4, 6)[0].begin, 12) << "b is not of the result";
  EXPECT_EQ(tokens(3, 4).size(), 0U) << "c is not of the result";
  EXPECT_EQ(tokens(6, 9).size(), 0U) << "ends behind the piece";
}

}  // namespace
}  // namespace kvarena
