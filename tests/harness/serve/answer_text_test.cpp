// Text of answers: whole characters, up to a stop string wherever tokens divide it.

#include "harness/serve/answer_text.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/core/random.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model_files.h"
#include "tests/support/tiny_vocabulary.h"

namespace kvarena::serve {
namespace {

class AnswerTexts : public ::testing::Test {
 protected:
  AnswerTexts() {
    testing::write_tiny_model(folder_.path(), 1);
    testing::write_vocabulary(folder_.path(), testing::ascii());
    tokenizer_ = load_tokenizer(folder_ / "tokenizer.json");
  }

  testing::TemporaryFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(AnswerTexts, WhatMayBeginAStopStringIsHeldBack) {
  AnswerText text(*tokenizer_, {"abc"});
  EXPECT_EQ(text.push('x'), "x");
  EXPECT_EQ(text.push('a'), "");
  EXPECT_EQ(text.push('b'), "");
  EXPECT_EQ(text.push('a'), "ab");
  EXPECT_EQ(text.push('b'), "");
  EXPECT_EQ(text.push('c'), "");
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.push('d'), "");
  EXPECT_EQ(text.finish(), "");
}

TEST_F(AnswerTexts, WhatWasHeldBackComesAtTheEnd) {
  AnswerText text(*tokenizer_, {"abc"});
  EXPECT_EQ(text.push('a'), "");
  EXPECT_EQ(text.push('b'), "");
  EXPECT_EQ(text.finish(), "ab");
  EXPECT_FALSE(text.stopped());
}

TEST_F(AnswerTexts, PiecesTogetherAreTheTextBeforeTheFirstStopThatIsComplete) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const RandomStream random(seed, "answer text");
    const auto letters = [&](uint64_t place, int64_t count) {
      std::string word;
      for (int64_t i = 0; i < count; ++i) {
        word += static_cast<char>('a' + random.below(2, place + static_cast<uint64_t>(i)));
      }
      return word;
    };
    const std::string whole = letters(0, 40);
    const std::vector<std::string> stops = {letters(100, 5), letters(200, 7)};
    // The stop string that is complete first ends the text, though another may begin before it.
    size_t end = std::string::npos;
    for (size_t length = 0; length <= whole.size() && end == std::string::npos; ++length) {
      const std::string come = whole.substr(0, length);
      end = std::min(come.find(stops[0]), come.find(stops[1]));
    }
    AnswerText text(*tokenizer_, stops);
    std::string pieces;
    for (const char c : whole) pieces += text.push(c);
    pieces += text.finish();
    EXPECT_EQ(pieces, whole.substr(0, end));
    EXPECT_EQ(text.stopped(), end != std::string::npos);
  }
}

}  // namespace
}  // namespace kvarena::serve
