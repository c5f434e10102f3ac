#include "harness/core/json_text.h"

#include <gtest/gtest.h>

#include "harness/core/error.h"

namespace kvarena {
namespace {

std::string problem_of(const std::string& text) {
  try {
    (void)parse_json(text, "x.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(JsonText, SyntaxErrorsNameLineAndColumn) {
  EXPECT_NE(problem_of("{\n  \"a\": ,\n}").find("x.json: line 2, column 8"), std::string::npos)
      << problem_of("{\n  \"a\": ,\n}");
}

TEST(JsonText, AKeyWrittenTwiceIsRefused) {
  EXPECT_EQ(problem_of(R"({"a": 1, "b": {"a": 1}})"), "");
  EXPECT_NE(problem_of(R"({"a": 1, "a": 2})").find("the key \"a\" twice"), std::string::npos);
}

TEST(JsonText, MadNestingAndNumbersAreRefused) {
  EXPECT_NE(problem_of(std::string(100, '[') + std::string(100, ']')).find("32 levels"), std::string::npos);
  EXPECT_NE(problem_of("[1e999]"), "");
}

TEST(JsonText, LongValuesAreCutInMessages) {
  EXPECT_EQ(brief(nlohmann::json("short")), "\"short\"");
  EXPECT_EQ(brief(nlohmann::json(std::string(500, 'x'))).size(), 83u);
}

}  // namespace
}  // namespace kvarena
