// Questions about contexts, from files and from the contexts themselves.

#include "datasets/questions.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "harness/core/error.h"
#include "tests/support/temporary_folder.h"

namespace kvarena::datasets {
namespace {

using testing::TemporaryFolder;

std::string text_of(int sentences) {
  std::string text = "Title\n\nToo short.\n";
  for (int i = 0; i < sentences; ++i) {
    text += "In year " + std::to_string(i) + " the mill by the river made a little more flour than before. ";
    if (i % 3 == 2) text += "\n\n";
  }
  return text;
}

TEST(QuestionsIn, AreItsLinesThatAskWhateverMarksThem) {
  const std::vector<std::string> questions = questions_in(
      "Here are the questions:\n1. Who built the mill?\n 2) When was it: before or after 1900?\r\n- Why there?\n\n"
      "**3. What did it cost?**\nQ4: How high is it?\n\"Is it 3.5 m wide?\"\nQuite so?\nI hope this helps.\n?\n12.?\n");
  EXPECT_EQ(questions,
            (std::vector<std::string>{"Who built the mill?", "When was it: before or after 1900?", "Why there?",
                                      "What did it cost?", "How high is it?", "Is it 3.5 m wide?", "Quite so?"}));
  EXPECT_TRUE(questions_in("").empty());
  const std::string request = question_request("The mill.", 7);
  EXPECT_EQ(request.rfind("The mill.", 0), 0U);
  EXPECT_NE(request.find("Write 7 questions"), std::string::npos);
}

TEST(SentenceQuestions, ShowTheFirstHalfOfDifferentSentencesOfTheText) {
  const std::string text = text_of(12);
  const auto questions = sentence_questions(text, 6, 3);
  ASSERT_EQ(questions.size(), 6U);
  std::set<std::string> different;
  for (const std::string& question : questions) {
    different.insert(question);
    const size_t begin = question.find(": ") + 2, end = question.rfind(" ...");
    const std::string shown = question.substr(begin, end - begin);
    EXPECT_NE(text.find(shown), std::string::npos) << shown;
    EXPECT_EQ(shown.substr(shown.size() - 5), "river") << "8 of 15 words";
  }
  EXPECT_EQ(different.size(), 6U);
  EXPECT_EQ(questions, sentence_questions(text, 6, 3)) << "the seed decides";
  EXPECT_NE(questions, sentence_questions(text, 6, 4));
}

TEST(SentenceQuestions, AreFewerWhereTheTextHasFewer) {
  EXPECT_EQ(sentence_questions(text_of(3), 10, 1).size(), 3U);
  EXPECT_TRUE(sentence_questions("", 5, 1).empty());
  EXPECT_TRUE(sentence_questions("One. Two. Three words here.", 5, 1).empty());
  EXPECT_TRUE(sentence_questions(text_of(3), 0, 1).empty());
}

TEST(QuestionFile, GivesEachContextItsQuestionsBySplit) {
  const TemporaryFolder scratch;
  const auto file = scratch.path() / "questions.jsonl";
  std::ofstream(file) << R"({"context_id": "a", "question": "Who?", "split": "train"})"
                      << "\n"
                      << R"({"context_id": "b", "question": "Why?", "split": "test"})"
                      << "\n"
                      << R"({"context_id": "a", "question": "When?", "split": "test"})"
                      << "\n";
  const auto questions = read_questions(file);
  ASSERT_EQ(questions.size(), 2U);
  EXPECT_EQ(questions.at("a").train, std::vector<std::string>{"Who?"});
  EXPECT_EQ(questions.at("a").test, std::vector<std::string>{"When?"});
  EXPECT_TRUE(questions.at("b").train.empty());
}

TEST(QuestionFile, TellsWhichLineIsNoQuestion) {
  const TemporaryFolder scratch;
  const auto file = scratch.path() / "questions.jsonl";
  const auto refused = [&](const std::string& row, const std::string& words) {
    std::ofstream(file) << R"({"context_id": "a", "question": "Who?", "split": "train"})"
                        << "\n"
                        << row << "\n";
    try {
      (void)read_questions(file);
      FAIL() << row;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("questions.jsonl:2"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused(R"({"context_id": "a", "question": "Who?", "split": "dev"})", "train or test");
  refused(R"({"context_id": "a", "split": "train"})", "question");
  refused("not json", "JSON");
  EXPECT_THROW((void)read_questions(scratch.path() / "absent.jsonl"), UserError);
}

}  // namespace
}  // namespace kvarena::datasets
