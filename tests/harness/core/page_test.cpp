#include "harness/core/page.h"

#include <gtest/gtest.h>

namespace kvarena {
namespace {

Page every_part() {
  Page page;
  page.bold("Head").text("\n").wrapped("one two three four", 2, 0).text("\n");
  page.columns({{"a", "first of them"}, {"long", "second of them"}});
  return page.examples({{"do it", "what it does"}});
}

TEST(Page, IsLaidOutForAWidth) {
  EXPECT_EQ(every_part().layout(40, false),
            "Head\none two three four\n  a     first of them\n  long  second of them\n  do it  what it does\n");
  EXPECT_EQ(every_part().layout(14, false),
            "Head\none two three\n  four\n  a     first\n        of\n        them\n  long  second\n        of\n"
            "        them\n  do it  what\n         it\n         does\n");
}

TEST(Page, ShowsBoldOnlyWhereItIsWelcome) {
  EXPECT_EQ(Page().bold("x").layout(80, true), "\033[1mx\033[0m");
  EXPECT_EQ(Page().bold("x").layout(80, false), "x");
}

TEST(Page, PutsMeaningsBelowLongExamples) {
  const Page page = Page().examples({{"a line of twenty-two c", "means this"}, {"short", "that"}});
  EXPECT_EQ(page.layout(44, false), "  a line of twenty-two c  means this\n  short                   that\n");
  EXPECT_EQ(page.layout(43, false), "  a line of twenty-two c\n      means this\n  short\n      that\n");
}

}  // namespace
}  // namespace kvarena
