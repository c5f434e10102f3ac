#include "harness/core/error.h"

#include <gtest/gtest.h>

namespace kvarena {
namespace {

TEST(Describe, SpeaksAllFivePartsInOneSentence) {
  EXPECT_EQ(describe({.place = "c.json: methods[0].keep",
                      .found = "1.4",
                      .expected = "a fraction above 0 and at most 1",
                      .action = "to keep a count write \"tokens\": 1024"}),
            "c.json: methods[0].keep: found 1.4, expected a fraction above 0 and at most 1; to keep a count write "
            "\"tokens\": 1024");
  EXPECT_EQ(
      describe({.place = "p", .found = "\"snap_kv\"", .nearest = "snapkv", .action = "`kvarena methods` lists all"}),
      "p: found \"snap_kv\"; did you mean \"snapkv\"? `kvarena methods` lists all");
}

TEST(Describe, LeavesOutWhatIsEmpty) {
  EXPECT_EQ(describe({.place = "p"}), "p");
  EXPECT_EQ(describe({.place = "p", .found = "x"}), "p: found x");
  EXPECT_EQ(describe({.place = "p", .expected = "y"}), "p: expected y");
  EXPECT_EQ(describe({.found = "x", .expected = "y"}), "found x, expected y");
  EXPECT_EQ(describe({.place = "p", .action = "do this"}), "p; do this");
  EXPECT_EQ(describe({}), "");
}

TEST(Fail, ThrowsTheUsersErrorWithTheWholeMessage) {
  try {
    fail({.place = "f", .found = "g"});
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "f: found g");
    return;
  }
  FAIL() << "nothing was thrown";
}

TEST(NearestName, FindsALikelySlipAndNothingElse) {
  const std::vector<std::string> names = {"snapkv", "kivi", "quest", "streaming_llm"};
  EXPECT_EQ(nearest_name("snap_kv", names), "snapkv");
  EXPECT_EQ(nearest_name("kivy", names), "kivi");
  EXPECT_EQ(nearest_name("streamingllm", names), "streaming_llm");
  EXPECT_EQ(nearest_name("SnapKV", names), "snapkv");
  EXPECT_EQ(nearest_name("f1", {"kl", "qa_f1"}), "qa_f1");
  EXPECT_EQ(nearest_name("qasper", {"longbench-e/qasper", "longbench/qasper"}), "longbench/qasper") << "the plainest";
  EXPECT_EQ(nearest_name("h2o", names), "");
  EXPECT_EQ(nearest_name("completely_else", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name("x", {}), "");
}

TEST(NearestName, CountsInsertionsDeletionsAndSubstitutions) {
  EXPECT_EQ(nearest_name("abcdef", {"abcdxx"}), "abcdxx") << "distance 2 is near enough";
  EXPECT_EQ(nearest_name("abcdef", {"abcxxx"}), "") << "distance 3 of 6 letters is not";
  EXPECT_EQ(nearest_name("abcdef", {"bcdef"}), "bcdef");
  EXPECT_EQ(nearest_name("abcdef", {"abcdefgh"}), "abcdefgh");
  EXPECT_EQ(nearest_name("abc", {"xbc", "abd", "abc"}), "abc") << "the nearest, not the first near one";
}

TEST(Assert, HoldsSilentlyAndOtherwiseCarriesConditionPlaceAndValues) {
  int evaluated = 0;
  KVARENA_ASSERT(1 + 1 == 2, (++evaluated, std::string("never built")));
  EXPECT_EQ(evaluated, 0);
  try {
    KVARENA_ASSERT(1 + 1 == 3, "one=1");
    FAIL() << "nothing was thrown";
  } catch (const InternalError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("1 + 1 == 3"), std::string::npos) << what;
    EXPECT_NE(what.find("one=1"), std::string::npos) << what;
    EXPECT_NE(what.find("error_test.cpp:"), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace kvarena
