// Questions about one context: made by generators, and as turns of a conversation.

#include "datasets/conversation.h"

#include <fmt/format.h>

#include <set>

#include "tests/datasets/support.h"
#include "tests/datasets/word_tokens.h"

namespace kvarena::datasets {
namespace {

Sample asking(const std::string& context, const std::string& text, const std::string& question,
              const std::string& answer, bool chat = false) {
  return {.id = question,
          .messages = {{"user", text + question}},
          .chat_template = chat,
          .answer_prefix = chat ? "It is" : "",
          .question = {0, text.size()},
          .context = context,
          .references = {answer, "another"}};
}

TEST(Conversation, APlainPromptGoesOnWithAnswersAndQuestions) {
  Conversation conversation;
  const std::string text = "The text.";
  Sample first = asking("a", text, "\nQ1:", "one"), second = asking("a", text, "\nQ2:", "two");
  Sample third = asking("a", text, "\nexamples\nQ3: ", "three");
  third.follow_up = "\nQ3: ";
  Sample other = asking("b", "Other.", "\nQ4:", "four");
  for (Sample* sample : {&first, &second, &third, &other}) conversation.join(*sample);
  EXPECT_EQ(first.messages[0].content, "The text.\nQ1:");
  EXPECT_TRUE(first.turns.empty());
  EXPECT_EQ(second.messages[0].content, "The text.\nQ1: one\nQ2:");
  EXPECT_EQ(second.turns, (std::vector<PromptPosition>{{0, 13}, {0, 17}}));
  EXPECT_EQ(third.messages[0].content, "The text.\nQ1: one\nQ2: two\nQ3: ");
  EXPECT_EQ(third.turns, (std::vector<PromptPosition>{{0, 13}, {0, 17}, {0, 21}, {0, 25}}));
  EXPECT_EQ(third.question, first.question);
  EXPECT_EQ(third.references[0], "three");
  EXPECT_EQ(other.messages[0].content, "Other.\nQ4:");
  EXPECT_TRUE(other.turns.empty());
}

TEST(Conversation, AChatGoesOnInMessages) {
  Conversation conversation;
  Sample first = asking("a", "Text.", "Q1?", "one", true), second = asking("a", "Text.", "Q2?", "two", true);
  first.messages.insert(first.messages.begin(), {"system", "Be short."});
  second.messages.insert(second.messages.begin(), {"system", "Be short."});
  first.question.message = second.question.message = 1;
  conversation.join(first);
  conversation.join(second);
  ASSERT_EQ(second.messages.size(), 4U);
  EXPECT_EQ(second.messages[1].content, "Text.Q1?");
  EXPECT_EQ(second.messages[2].role, "assistant");
  EXPECT_EQ(second.messages[2].content, "It is one");
  EXPECT_EQ(second.messages[3].content, "Q2?");
  EXPECT_EQ(second.answer_prefix, "It is");
  EXPECT_EQ(second.turns, (std::vector<PromptPosition>{{2, 5}, {2, 9}}));
}

TEST(Conversation, SamplesWithoutACommonContextStayAlone) {
  Conversation conversation;
  for (int i = 0; i < 2; ++i) {
    Sample sample = asking("", "Text.", "Q?", "one");
    conversation.join(sample);
    EXPECT_EQ(sample.messages[0].content, "Text.Q?");
  }
}

class SeveralQuestions : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] std::vector<Sample> samples(int questions, int count, bool turns = false) const {
    const bool ruler = std::string_view(GetParam()).starts_with("ruler");
    const std::string length = ruler ? R"("length": 600, )" : "";
    return all_samples(GetParam(), fmt::format(R"({{{}"questions": {}, "samples": {}}})", length, questions, count),
                       {.tokens = &tokens_, .turns = turns});
  }
  static std::string context_of(const Sample& sample) {
    return sample.messages[0].content.substr(0, sample.question.byte);
  }
  const WordTokens tokens_;
};
INSTANTIATE_TEST_SUITE_P(Generators, SeveralQuestions,
                         ::testing::Values("needle", "fact_qa", "ruler/niah_single_2", "ruler/niah_multikey_2"));

TEST_P(SeveralQuestions, ShareTheirContextAndAskForOtherThings) {
  const std::vector<Sample> made = samples(3, 7);
  ASSERT_EQ(made.size(), 7U);
  std::set<std::string> contexts;
  for (size_t i = 0; i < made.size(); i += 3) {
    std::set<std::string> questions, answers;
    const size_t end = std::min(i + 3, made.size());
    for (size_t k = i; k < end; ++k) {
      EXPECT_EQ(made[k].context, made[i].context);
      EXPECT_EQ(context_of(made[k]), context_of(made[i]));
      EXPECT_NE(context_of(made[k]).find(made[k].references[0]), std::string::npos);
      EXPECT_EQ(question_text(made[k]).find(made[k].references[0]), std::string::npos) << question_text(made[k]);
      questions.insert(question_text(made[k]));
      answers.insert(made[k].references[0]);
    }
    EXPECT_EQ(questions.size(), end - i);
    EXPECT_EQ(answers.size(), end - i);
    EXPECT_TRUE(contexts.insert(made[i].context).second);
    EXPECT_FALSE(made[i].context.empty());
  }
}

TEST_P(SeveralQuestions, OneIsWhatThereWasWithoutTheSetting) {
  const std::vector<Sample> one = samples(1, 3), three = samples(3, 9);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].context, "");
    EXPECT_EQ(one[i].references.empty(), false);
  }
  const bool needles_added = std::string_view(GetParam()) != "fact_qa";
  // Other needles lie in a text of several questions; a report stays what it is.
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].prompt_sha256 != three[3 * i].prompt_sha256, needles_added);
}

TEST_P(SeveralQuestions, AreTurnsThatBeginWithTheTurnsBefore) {
  const std::vector<Sample> alone = samples(3, 6), turns = samples(3, 6, /*turns=*/true);
  for (size_t i = 0; i < turns.size(); ++i) {
    EXPECT_EQ(context_of(turns[i]), context_of(alone[i]));
    EXPECT_EQ(turns[i].id, alone[i].id);
    EXPECT_EQ(turns[i].data_sha256, alone[i].data_sha256);
    EXPECT_EQ(turns[i].references, alone[i].references);
    EXPECT_EQ(turns[i].turns.size(), 2 * (i % 3));
    EXPECT_EQ(turns[i].prompt_sha256 == alone[i].prompt_sha256, i % 3 == 0);
    std::string said;
    for (const Message& message : turns[i].messages) said += message.content;
    for (size_t before = i - i % 3; before < i; ++before) {
      EXPECT_GT(said.rfind(alone[before].references[0]), alone[before].question.byte);
    }
    EXPECT_LE(said.rfind(alone[i].references[0]), alone[i].question.byte) << "its own answer is not told";
  }
}

TEST(FactQuestions, MoreThanAReportHasFactsAreRefused) {
  const std::string message = error_of([] { (void)make_workload("fact_qa", R"({"things": 2, "questions": 5})", "c"); });
  EXPECT_NE(message.find("found 5 and 3 examples, expected at most 6"), std::string::npos) << message;
}

}  // namespace
}  // namespace kvarena::datasets
