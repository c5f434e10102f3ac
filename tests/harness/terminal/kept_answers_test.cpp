#include "harness/terminal/kept_answers.h"

#include <gtest/gtest.h>

namespace kvarena {
namespace {

std::string answers() {
  return kept_answer_line({}, {Page().text("nothing\n"), 1}) + kept_answer_line({"run"}, {Page().text("run\n"), 0}) +
         kept_answer_line({"run", "--help"}, {Page().text("tab\tand\nline\n"), 0});
}

std::string text_of(const std::vector<std::string>& words) {
  const auto found = find_kept_answer(answers(), words);
  return found ? found->page.layout(80, false) : "not kept";
}

TEST(KeptAnswers, AreFoundByTheirWords) {
  EXPECT_EQ(text_of({"run"}), "run\n");
  EXPECT_EQ(text_of({"run", "--help"}), "tab\tand\nline\n");
  EXPECT_EQ(text_of({"run", "-h"}), "tab\tand\nline\n");
  EXPECT_EQ(text_of({}), "nothing\n");
  EXPECT_EQ(find_kept_answer(answers(), {})->code, 1);
}

TEST(KeptAnswers, AreForExactlyTheirWords) {
  EXPECT_EQ(text_of({"ru"}), "not kept");
  EXPECT_EQ(text_of({"run", "--help", "x"}), "not kept");
  EXPECT_EQ(text_of({"--help", "run"}), "not kept");
  EXPECT_EQ(text_of({"run --help"}), "not kept");
  EXPECT_EQ(text_of({"run\t0"}), "not kept");
  EXPECT_EQ(text_of({""}), "not kept");
}

}  // namespace
}  // namespace kvarena
