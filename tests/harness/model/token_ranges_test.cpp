// Places of tokens in their text, and choices carried over from one tokenizer's tokens to another's.

#include "harness/model/tokenizer/token_ranges.h"

#include <gtest/gtest.h>

#include "harness/core/random.h"
#include "harness/method/important_tokens.h"
#include "harness/model/gguf.h"
#include "tests/harness/model/model_files.h"

namespace kvarena {
namespace {

using nlohmann::json;

struct Encoded {
  std::vector<int32_t> ids;
  std::vector<TextRange> ranges;
};

Encoded encode(const Tokenizer& tokenizer, const std::string& text, bool special = false) {
  Encoded encoded{.ids = tokenizer.encode(text, {.add_special = special}), .ranges = {}};
  encoded.ranges = token_ranges(tokenizer, encoded.ids, text);
  return encoded;
}

/// Ranges follow each other, several tokens share one only as a whole, and every byte has a token.
void expect_partition(const Encoded& encoded, const std::string& text) {
  ASSERT_EQ(encoded.ranges.size(), encoded.ids.size());
  int64_t at = 0;
  TextRange last;
  for (const TextRange& range : encoded.ranges) {
    ASSERT_LE(range.begin, range.end);
    ASSERT_TRUE(range == last || range.begin == at) << "a gap or an overlap at byte " << at;
    at = range.end;
    last = range;
  }
  EXPECT_TRUE(encoded.ids.empty() || at == static_cast<int64_t>(text.size())) << at;
}

std::vector<std::pair<std::string, std::unique_ptr<Tokenizer>>> shared_vocabularies() {
  std::vector<std::pair<std::string, std::unique_ptr<Tokenizer>>> list;
  for (const char* name : {"qwen3", "llama3", "mistral_v1", "deepseek_v3"}) {
    list.emplace_back(name, load_tokenizer(testing::shared_tokenizers() / name / "tokenizer.json.gz"));
  }
  return list;
}

/// Choosing any tokens of one tokenizer and taking the choice to another loses none of their characters, and takes in
/// nothing but tokens that have a part of them.
TEST(TokenRanges, ChoicesGoFromOneTokenizerToAnotherWithoutLosingACharacter) {
  if (!std::filesystem::exists(testing::shared_tokenizers() / "golden.jsonl.gz")) {
    GTEST_SKIP() << "no " << testing::shared_tokenizers();
  }
  const auto tokenizers = shared_vocabularies();
  const RandomStream draws(20260105, "choices");
  uint64_t drawn = 0;
  size_t exact = 0;
  size_t all = 0;
  for (const json& line : testing::read_jsonl(testing::shared_tokenizers() / "golden.jsonl.gz")) {
    if (!line.contains("text")) continue;
    const auto text = line["text"].get<std::string>();
    std::vector<Encoded> encodings;
    for (const auto& [name, tokenizer] : tokenizers) {
      SCOPED_TRACE(name + ": " + line["text"].dump());
      encodings.push_back(encode(*tokenizer, text));
      expect_partition(encodings.back(), text);
      for (size_t i = 0; i < encodings.back().ids.size(); ++i) {
        const TextRange& range = encodings.back().ranges[i];
        const std::string bytes = tokenizer->token_bytes(encodings.back().ids[i], i == 0);
        exact += text.substr(range.begin, range.end - range.begin) == bytes ? 1 : 0;
        ++all;
      }
    }
    for (const Encoded& own : encodings) {
      std::vector<int32_t> chosen;
      std::vector<bool> wanted(text.size());
      for (size_t i = 0; i < own.ids.size(); ++i) {
        if (draws.below(4, drawn++) > 0) continue;
        chosen.push_back(static_cast<int32_t>(i));
        for (int64_t b = own.ranges[i].begin; b < own.ranges[i].end; ++b) wanted[b] = true;
      }
      for (const Encoded& target : encodings) {
        std::vector<bool> covered(text.size());
        for (const int32_t j : align_tokens(chosen, own.ranges, target.ranges)) {
          bool useful = false;
          for (int64_t b = target.ranges[j].begin; b < target.ranges[j].end; ++b) {
            covered[b] = true;
            useful = useful || wanted[b];
          }
          EXPECT_TRUE(useful) << "token " << j << " of " << line["text"];
        }
        for (size_t b = 0; b < text.size(); ++b)
          ASSERT_TRUE(covered[b] || !wanted[b]) << "byte " << b << " of " << text;
      }
    }
  }
  EXPECT_GT(static_cast<double>(exact), 0.99 * static_cast<double>(all)) << "ranges spell their tokens";
}

TEST(TokenRanges, OfTheDefaultModelSpellTheText) {
  if (!std::filesystem::exists(testing::smollm2_file())) GTEST_SKIP() << "no " << testing::smollm2_file();
  const auto tokenizer = load_gguf_tokenizer(GgufFile(testing::smollm2_file()));
  for (const std::string text : {"<|im_start|>user\nNew York is large.<|im_end|>\n", "naïve 🙂🙂 text", "x", ""}) {
    const Encoded encoded = encode(*tokenizer, text);
    expect_partition(encoded, text);
    for (size_t i = 0; i < encoded.ids.size(); ++i) {
      const TextRange& range = encoded.ranges[i];
      EXPECT_EQ(text.substr(range.begin, range.end - range.begin), tokenizer->token_bytes(encoded.ids[i], i == 0));
    }
  }
}

TEST(TokenRanges, TokensThatTheTextDoesNotWriteAreEmpty) {
  if (!std::filesystem::exists(testing::shared_tokenizers() / "mistral_v1")) GTEST_SKIP() << "no vocabularies";
  const auto tokenizer = load_tokenizer(testing::shared_tokenizers() / "mistral_v1" / "tokenizer.json.gz");
  const Encoded encoded = encode(*tokenizer, "New York", /*special=*/true);
  expect_partition(encoded, "New York");
  EXPECT_EQ(encoded.ranges[0], (TextRange{0, 0})) << "<s>";
}

}  // namespace
}  // namespace kvarena
