#include "harness/evaluate/thinking.h"

#include <gtest/gtest.h>

#include "harness/evaluate/request.h"
#include "harness/model/open_model.h"
#include "tests/support/default_model.h"

namespace kvarena::evaluate {
namespace {

constexpr std::string_view kOpenPrompt = "<|im_start|>assistant\n<think>\n";

class ThinkingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(testing::default_model())) GTEST_SKIP() << "the default model is not there";
    tokenizer_ = open_model(testing::default_model()).tokenizer;
    request_.tokenizer = tokenizer_.get();
    request_.sample = &sample_;
  }

  void ask(std::string_view chat, std::string_view prompt) {
    request_.thinking = thinking_of(ChatTemplate::named(chat, "", ""), *tokenizer_, prompt);
  }

  /// Tokens of the parts, one after the other.
  std::vector<int32_t> tokens(std::initializer_list<std::string_view> parts) const {
    std::vector<int32_t> all;
    for (const std::string_view part : parts) {
      const std::vector<int32_t> ids = tokenizer_->encode(part, {.add_special = false});
      all.insert(all.end(), ids.begin(), ids.end());
    }
    return all;
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  datasets::Sample sample_;
  Request request_;
};

TEST_F(ThinkingTest, TheAnswerIsWhatFollowsTheLastMark) {
  ask("qwen3", "<|im_start|>assistant\n");
  const std::vector<int32_t> thought = tokens({"<think>", "\nadd them\n", "</think>"});
  std::vector<int32_t> answer = thought;
  for (const int32_t id : tokens({"\n\n", "Four."})) answer.push_back(id);
  EXPECT_EQ(thinking_tokens(request_.thinking, answer), std::ssize(thought));
  EXPECT_EQ(answer_text(request_, answer), "Four.");
  EXPECT_EQ(answer_text(request_, tokens({"Four."})), "Four.");
}

TEST_F(ThinkingTest, ThinkingThatDoesNotEndIsNoAnswer) {
  ask("deepseek_r1", kOpenPrompt);
  EXPECT_TRUE(request_.thinking.begun);
  EXPECT_EQ(answer_text(request_, tokens({"first I add"})), "");
  EXPECT_EQ(answer_text(request_, tokens({"first I add", "</think>", "4"})), "4");
  ask("qwen3", "<|im_start|>assistant\n");
  EXPECT_EQ(answer_text(request_, tokens({"<think>", "first I add"})), "");
}

TEST_F(ThinkingTest, EndsBeforeTheAnswerWhereThePromptSaysSo) {
  ask("qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_FALSE(request_.thinking.begun);
  EXPECT_EQ(answer_text(request_, tokens({"Four."})), "Four.");
}

TEST_F(ThinkingTest, IsNothingToOtherTemplates) {
  ask("smollm2", "<|im_start|>assistant\n");
  EXPECT_EQ(answer_text(request_, tokens({"a ", "</think>", " b"})), "a </think> b");
}

TEST_F(ThinkingTest, StopStringsEndTheAnswerAlone) {
  ask("deepseek_r1", kOpenPrompt);
  sample_.generation.stop = {"\n"};
  const StopRule rule = stop_rule(sample_, *tokenizer_, request_.thinking, {}, 64);
  EXPECT_FALSE(rule.stop_when(tokens({"first\n", "I add"})));
  EXPECT_FALSE(rule.stop_when(tokens({"first\n", "</think>", "\n\n", "4"})));
  EXPECT_TRUE(rule.stop_when(tokens({"first\n", "</think>", "\n\n", "4", "\n"})));
}

}  // namespace
}  // namespace kvarena::evaluate
