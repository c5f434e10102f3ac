#include "datasets/prompt.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "datasets/truncation.h"
#include "tests/datasets/support.h"
#include "tests/datasets/word_tokens.h"

namespace kvarena::datasets {
namespace {

TEST(Render, ReplacesSlotsOnceAndLeavesBracesOfTheDataAlone) {
  const Rendered prompt = render("Say {name}: {context} {other} {{x}}\nQ: {input}",
                                 {{"context", "{input} {"}, {"input", "{context}"}, {"name", "N"}});
  EXPECT_EQ(prompt.text, "Say N: {input} { {other} {{x}}\nQ: {context}");
  EXPECT_EQ(prompt.text.substr(prompt.question), " {other} {{x}}\nQ: {context}");
}

TEST(Render, WithoutContextEverythingIsQuestion) { EXPECT_EQ(render("{input}", {{"input", "Why?"}}).question, 0u); }

std::vector<int32_t> ids_of(const nlohmann::json& list) { return list.get<std::vector<int32_t>>(); }

TEST(MiddleCut, AgreesWithTheOfficialScripts) {
  const auto path = shared_data() / "metric-vectors" / "middle_truncation.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no vectors at " << path;
  for (const nlohmann::json& row : json_lines(path)) {
    const auto ids = ids_of(row["ids"]);
    const auto rule = row["rule"] == "longbench_v1" ? TruncationRule::middle_halves : TruncationRule::middle_joined;
    const MiddleCut cut = middle_cut(ids.size(), row["max_length"], rule);
    EXPECT_EQ(std::vector(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(cut.head)), ids_of(row["expected_head"]))
        << row["id"];
    EXPECT_EQ(std::vector(ids.end() - static_cast<ptrdiff_t>(cut.tail), ids.end()), ids_of(row["expected_tail"]))
        << row["id"];
  }
}

TEST(MiddleCut, OddLimitsDifferBetweenTheTwoVersionsByOneToken) {
  EXPECT_EQ(middle_cut(10, 7, TruncationRule::middle_halves).tail, 3u);
  EXPECT_EQ(middle_cut(10, 7, TruncationRule::middle_joined).tail, 4u);
  EXPECT_EQ(middle_cut(10, 7, TruncationRule::none).head, 10u);
}

Sample plain(std::string text, size_t question) {
  return {.id = "s", .messages = {{"user", std::move(text)}}, .chat_template = false, .question = {0, question}};
}

TEST(TruncatePrompt, KeepsBothEndsAndMovesTheQuestionWithItsText) {
  const WordTokens tokens;
  Sample sample = plain("a b c d e f g h. Why?", 16);  // 11 tokens: a, 7 words, ".", " Why", "?"
  truncate_prompt(sample, TruncationRule::middle_halves, 8, tokens);
  EXPECT_EQ(sample.messages[0].content, "a b c d h. Why?");
  EXPECT_EQ(question_text(sample), " Why?");
  EXPECT_EQ(sample.truncation.tokens_before, 11);
  EXPECT_EQ(sample.truncation.tokens_removed, 3);
}

TEST(TruncatePrompt, AQuestionThatBeganInTheRemovedPartBeginsAtTheSeam) {
  const WordTokens tokens;
  Sample sample = plain("a b c d e f g h i j", 9);
  truncate_prompt(sample, TruncationRule::middle_joined, 5, tokens);
  EXPECT_EQ(sample.messages[0].content, "a b h i j");
  EXPECT_EQ(question_text(sample), " h i j");
}

TEST(TruncatePrompt, CountsBosAsTheOfficialScriptsDo) {
  const WordTokens tokens(/*leading_special_tokens=*/1);
  Sample sample = plain("a b c d e f g h", 0);
  truncate_prompt(sample, TruncationRule::middle_halves, 6, tokens);
  EXPECT_EQ(sample.truncation.tokens_before, 9);
  EXPECT_EQ(sample.messages[0].content, "a b f g h");  // BOS a b | f g h
}

TEST(TruncatePrompt, LeavesShortPromptsAloneAndSaysSo) {
  const WordTokens tokens;
  Sample sample = plain("a b c", 0);
  truncate_prompt(sample, TruncationRule::middle_halves, 3, tokens);
  EXPECT_EQ(sample.messages[0].content, "a b c");
  EXPECT_EQ(sample.truncation.tokens_removed, 0);
}

TEST(TruncatePrompt, NeverCutsSystemTextButSaysWhenItFillsTheLimit) {
  const WordTokens tokens;
  Sample sample{.id = "s", .messages = {{"system", "x y"}, {"user", "a b c d e f g h"}}, .question = {1, 13}};
  truncate_prompt(sample, TruncationRule::middle_halves, 8, tokens);
  EXPECT_EQ(sample.messages[0].content, "x y");
  EXPECT_EQ(sample.messages[1].content, "a b e f g h");  // x y a b | e f g h
  EXPECT_EQ(question_text(sample), " h");
  EXPECT_NE(
      error_of([&] { truncate_prompt(sample, TruncationRule::middle_halves, 3, tokens); }).find("raise max_prompt"),
      std::string::npos);
}

TEST(TruncatePrompt, TakesTheEndOfTheContextAndPutsTheMarkThere) {
  const WordTokens tokens(/*leading_special_tokens=*/1);
  Sample sample = plain("a b c d e f g h. Why?", 16);  // 12 tokens: BOS, a, 7 words, ".", " Why", "?"
  truncate_prompt(sample, TruncationRule::context_end, 8, tokens);
  EXPECT_EQ(sample.messages[0].content, "a b c d e Why?");
  EXPECT_EQ(question_text(sample), " Why?");
  EXPECT_EQ(sample.truncation.tokens_removed, 4);
  sample = plain("a b c d e f g h. Why?", 16);
  sample.cut_mark = " ... cut";  // 4 tokens
  truncate_prompt(sample, TruncationRule::context_end, 9, tokens);
  EXPECT_EQ(sample.messages[0].content, "a b ... cut Why?");
  EXPECT_EQ(question_text(sample), " Why?");
  EXPECT_NE(error_of([&] { truncate_prompt(sample, TruncationRule::context_end, 4, tokens); }).find("raise max_prompt"),
            std::string::npos);
}

TEST(TruncatePrompt, TakesTheEndOfAPromptThatIsAllQuestionAndMovesTurns) {
  const WordTokens tokens;
  Sample sample = plain("a b c d e", 0);
  truncate_prompt(sample, TruncationRule::context_end, 3, tokens);
  EXPECT_EQ(sample.messages[0].content, "a b c");
  sample = plain("a b c d Why? Yes", 7);
  sample.turns = {{0, 12}, {0, 16}};
  truncate_prompt(sample, TruncationRule::context_end, 5, tokens);
  EXPECT_EQ(sample.messages[0].content, "a b Why? Yes");
  EXPECT_EQ(sample.turns, (std::vector<PromptPosition>{{0, 8}, {0, 12}}));
}

TEST(TruncatePrompt, PropertyAQuestionInTheKeptTailIsNeverChanged) {
  const WordTokens tokens;
  for (int n = 4; n < 60; ++n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += fmt::format(" w{}", i);
    const size_t question = text.size() - 3;
    for (int64_t limit = 4; limit < n; ++limit) {
      for (const auto rule : {TruncationRule::middle_halves, TruncationRule::middle_joined}) {
        Sample sample = plain(text, question);
        truncate_prompt(sample, rule, limit, tokens);
        ASSERT_EQ(question_text(sample), text.substr(question)) << "n=" << n << " limit=" << limit;
        ASSERT_LE(tokens.encode(sample.messages[0].content).size(), static_cast<size_t>(limit));
      }
    }
  }
}

}  // namespace
}  // namespace kvarena::datasets
