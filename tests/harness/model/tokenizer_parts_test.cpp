// The parts of tokenizers, each against something simpler or older than itself.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "harness/core/error.h"
#include "harness/model/tokenizer/added_tokens.h"
#include "harness/model/tokenizer/bpe.h"
#include "harness/model/tokenizer/bpe_files.h"
#include "harness/model/tokenizer/byte_alphabet.h"
#include "harness/model/tokenizer/pre_tokenizer.h"
#include "harness/model/tokenizer/regex.h"
#include "harness/model/tokenizer/scanners.h"
#include "harness/model/tokenizer/tokenizer.h"
#include "harness/model/tokenizer/unicode.h"
#include "harness/model/tokenizer/utf8.h"
#include "tests/harness/model/model_files.h"

namespace kvarena {
namespace {

/// Characters where the patterns' alternatives meet.
std::string random_text(std::mt19937_64& draw) {
  static const std::vector<std::string> pieces = {
      "a",      "Z",      "he",     "'s", "'S", "'ll",  "'LL",   "'x", "'",          "1",         "234",    "٣",
      "½",      " ",      "  ",     "\t", "\n", "\r\n", ".",     "!?", "_",          "$",         "é",      "e\u0301",
      "\u0301", "日",     "本語",   "ひ", "カ", "、",   "한",    "😀",  "\u200d",     "\u00a0",    "\u3000", "\u2028",
      "\u0085", "\ufeff", "\u0001", "'ſ", "ſ",  "K",    "<|x|>", "ⅷ",  "\U00020000", "\U0010ffff"};
  std::string text;
  for (uint64_t count = draw() % 16; count > 0; --count) text += pieces[draw() % pieces.size()];
  return text;
}

std::vector<std::string> cut(const PreTokenizer& step, std::string_view text) {
  Pieces pieces{.text = text};
  if (!text.empty()) pieces.list.push_back({0, static_cast<uint32_t>(text.size())});
  step.apply(pieces);
  std::vector<std::string> parts;
  for (const Piece piece : pieces.list) parts.emplace_back(pieces[piece]);
  return parts;
}

TEST(Scanners, CutWhereTheRegularExpressionsCut) {
  std::mt19937_64 draw(21);
  for (const std::string_view pattern : {kGpt2Pattern, kLlama3Pattern, kQwenPattern, kDeepSeekDigitsPattern,
                                         kDeepSeekHanPattern, kDeepSeekWordsPattern}) {
    const PreTokenizerPtr scanner = make_scanner(pattern);
    ASSERT_NE(scanner, nullptr);
    const PreTokenizerPtr regex = make_regex_split(std::string(pattern), SplitBehavior::isolated, false, "test");
    for (int round = 0; round < 20000; ++round) {
      const std::string text = random_text(draw);
      ASSERT_EQ(cut(*scanner, text), cut(*regex, text)) << pattern << "\non \"" << text << "\" round " << round;
    }
  }
  EXPECT_EQ(make_scanner("a|b"), nullptr);
}

/// By the Python package tokenizers 0.23, whose step Split has the same pattern.
TEST(Scanners, TheLargestPatternKnowsCaseContractionsAndDigits) {
  const PreTokenizerPtr step = make_regex_split(std::string(kO200kPattern), SplitBehavior::isolated, false, "test");
  EXPECT_EQ(cut(*step, "HelloWorld's DON'T count 12345: (a/b)//\n\n  größer 日本'll x"),
            (std::vector<std::string>{"Hello", "World's", " DON'T", " count", " ", "123", "45", ":", " (", "a", "/b",
                                      ")//\n\n", " ", " größer", " 日本'll", " x"}));
}

TEST(Utf8, ReplacesEachMaximalMalformedPartOnce) {
  // Examples of the Unicode Standard, table 3-8, and of the WHATWG encoding tests.
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(replace_malformed_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(replace_malformed_utf8("\xED\xA0\x80"), r + r + r) << "a surrogate";
  EXPECT_EQ(replace_malformed_utf8("\xC0\xAF\xE0\x80\xBF"), r + r + r + r + r) << "overlong forms";
  EXPECT_EQ(replace_malformed_utf8("\xF4\x91\x92\x93"), r + r + r + r) << "above U+10FFFF";
  EXPECT_EQ(replace_malformed_utf8("\xE2\x82"), r) << "cut at the end";
  EXPECT_TRUE(is_valid_utf8("plain ASCII, longer than a word; naïve 日本語 😀"));
  EXPECT_FALSE(is_valid_utf8("plain ASCII, longer than a word \xff"));
}

TEST(ByteAlphabet, IsABijectionOverAllBytes) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string raw(1, static_cast<char>(byte));
    std::string back;
    ASSERT_TRUE(append_bytes_of(text_of_bytes(raw), back));
    EXPECT_EQ(back, raw);
  }
  EXPECT_EQ(text_of_bytes(" the\n"), "ĠtheĊ");
  std::string untouched = "x";
  EXPECT_FALSE(append_bytes_of("a日", untouched));
  EXPECT_EQ(untouched, "x");
}

TEST(AddedTokens, LongestOfTheLeftmostWins) {
  const AddedTokenMatcher matcher(
      {{.id = 1, .content = "<a"}, {.id = 2, .content = "<a>"}, {.id = 3, .content = "a>b"}});
  std::vector<std::pair<std::string, int32_t>> parts;
  for (const TextPart& part : matcher.split("x<a>b<a", true)) parts.emplace_back(part.text, part.token);
  EXPECT_EQ(parts, (std::vector<std::pair<std::string, int32_t>>{{"x", -1}, {"<a>", 2}, {"b", -1}, {"<a", 1}}));
}

/// Merges a piece by the definition: find the pair of lowest rank, leftmost; merge it; again.
std::vector<int32_t> merge_naively(std::vector<int32_t> symbols, const std::vector<Bpe::Merge>& merges) {
  while (true) {
    size_t best_rank = merges.size();
    size_t best_at = 0;
    for (size_t at = 0; at + 1 < symbols.size(); ++at) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left == symbols[at] && merges[rank].right == symbols[at + 1]) {
          best_rank = rank;
          best_at = at;
        }
      }
    }
    if (best_rank == merges.size()) return symbols;
    symbols[best_at] = merges[best_rank].result;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

TEST(Bpe, ShortAndLongPiecesMergeAsTheDefinitionSays) {
  std::mt19937_64 draw(22);
  for (int vocabulary_round = 0; vocabulary_round < 20; ++vocabulary_round) {
    // A random vocabulary over a, b, c: every merge joins two tokens that exist, into a token that is new or not.
    auto vocabulary = std::make_shared<Vocabulary>();
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::vector<Bpe::Merge> merges;
    for (int i = 0; i < 30; ++i) {
      const auto left = static_cast<int32_t>(draw() % tokens.size());
      const auto right = static_cast<int32_t>(draw() % tokens.size());
      const std::string whole = tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)];
      if (whole.size() > 12) continue;
      const auto known = std::find(tokens.begin(), tokens.end(), whole);
      const bool listed = std::any_of(merges.begin(), merges.end(), [&](const Bpe::Merge& merge) {
        return merge.left == left && merge.right == right;
      });
      if (listed) continue;
      merges.push_back({left, right, static_cast<int32_t>(known - tokens.begin())});
      if (known == tokens.end()) tokens.push_back(whole);
    }
    for (size_t i = 0; i < tokens.size(); ++i) vocabulary->set(static_cast<int32_t>(i), tokens[i], true);
    const Bpe bpe(vocabulary, merges, {.byte_level = true});
    for (int round = 0; round < 60; ++round) {
      std::string text;
      std::vector<int32_t> symbols;
      for (uint64_t length = 1 + draw() % 120; length > 0; --length) {
        symbols.push_back(static_cast<int32_t>(draw() % 3));
        text += static_cast<char>('a' + symbols.back());
      }
      std::vector<int32_t> ids;
      bpe.encode(text, ids);
      ASSERT_EQ(ids, merge_naively(symbols, merges)) << text;
    }
  }
}

TEST(Bpe, SentencePieceScoresGiveTheMergesOfThePublishedConversion) {
  const auto path = testing::shared_tokenizers() / "mistral_v1" / "tokenizer.json.gz";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const nlohmann::json file = nlohmann::json::parse(testing::read_gzip(path));
  const nlohmann::json& model = file["model"];
  Vocabulary vocabulary;
  for (const auto& [token, id] : model["vocab"].items()) vocabulary.set(id.get<int32_t>(), token, true);
  // The conversion orders merges by the score of the token they give; so its order tells the scores.
  std::vector<float> scores(static_cast<size_t>(vocabulary.size()), -1e9F);
  for (size_t i = model["merges"].size(); i-- > 0;) {
    auto whole = model["merges"][i].get<std::string>();
    whole.erase(whole.find(' '), 1);
    scores[static_cast<size_t>(vocabulary.find(whole))] = -static_cast<float>(i);
  }
  const std::vector<Bpe::Merge> merges = merges_from_scores(vocabulary, scores);
  ASSERT_EQ(merges.size(), model["merges"].size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string line =
        std::string(vocabulary.bytes(merges[i].left)) + " " + std::string(vocabulary.bytes(merges[i].right));
    ASSERT_EQ(line, model["merges"][i].get<std::string>()) << "merge " << i;
  }
}

TEST(TokenizerRegex, EmptyMatchesAreSkippedAndTextIsLeftWhole) {
  const TokenizerRegex regex("x*", "test");
  std::vector<std::pair<size_t, size_t>> matches;
  regex.each_match("日xx日x", [&](size_t begin, size_t end) { matches.emplace_back(begin, end); });
  EXPECT_EQ(matches, (std::vector<std::pair<size_t, size_t>>{{3, 5}, {8, 9}}));
  EXPECT_THROW(TokenizerRegex("(", "tokenizer.json: pre_tokenizer"), UserError);
}

TEST(Unicode, NormalisesAsTheStandardSays) {
  using unicode::Form;
  EXPECT_EQ(unicode::normalize("cafe\u0301 \u1100\u1161\u11a8 \u212b", Form::nfc), "caf\u00e9 \uac01 \u00c5");
  EXPECT_EQ(unicode::normalize("caf\u00e9", Form::nfd), "cafe\u0301");
  EXPECT_EQ(unicode::normalize("\ufb01\u00bd", Form::nfkc), "fi1\u20442");
  std::mt19937_64 draw(23);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_text(draw);
    if (unicode::is_surely_nfc(text)) {
      ASSERT_EQ(unicode::normalize(text, Form::nfc), text);
    }
    const std::string once = unicode::normalize(text, Form::nfc);
    ASSERT_EQ(unicode::normalize(once, Form::nfc), once) << text;
  }
}

/// Llama 3's kind of vocabulary without merges: every byte a token.
std::unique_ptr<Tokenizer> byte_tokenizer(const testing::TemporaryFolder& folder, bool sentencepiece) {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string raw(1, static_cast<char>(byte));
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    vocab[sentencepiece ? std::string(name) : text_of_bytes(raw)] = byte;
  }
  if (sentencepiece) vocab["▁"] = 256;
  nlohmann::json file = {
      {"model",
       {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}, {"byte_fallback", sentencepiece}}}};
  const nlohmann::json replace = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
  if (sentencepiece) {
    file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
    file["decoder"] = {{"type", "Sequence"}, {"decoders", {replace, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
  } else {
    file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
    file["decoder"] = {{"type", "ByteLevel"}};
  }
  return load_tokenizer(folder.write("tokenizer.json", file.dump()));
}

TEST(Detokenizer, GivesWholeCharactersAsSoonAsTheyAreComplete) {
  const testing::TemporaryFolder folder;
  for (const bool sentencepiece : {false, true}) {
    const auto tokenizer = byte_tokenizer(folder, sentencepiece);
    const std::string text = "naïve 日本語 😀!";
    const std::vector<int32_t> ids = tokenizer->encode(text);
    ASSERT_EQ(ids.size(), text.size());
    Detokenizer stream(*tokenizer);
    std::string so_far;
    for (size_t i = 0; i < ids.size(); ++i) {
      so_far += stream.push(ids[i]);
      ASSERT_TRUE(is_valid_utf8(so_far));
      const bool boundary = i + 1 == text.size() || (static_cast<uint8_t>(text[i + 1]) & 0xc0) != 0x80;
      if (boundary) {
        ASSERT_EQ(so_far, text.substr(0, i + 1));
      }
    }
    EXPECT_EQ(stream.finish(), "");
  }
}

TEST(Detokenizer, MalformedBytesBecomeReplacementCharacters) {
  const testing::TemporaryFolder folder;
  const auto tokenizer = byte_tokenizer(folder, false);
  const std::string r(kReplacementCharacter);
  std::mt19937_64 draw(24);
  for (int round = 0; round < 500; ++round) {
    std::vector<int32_t> ids;
    for (uint64_t count = draw() % 12; count > 0; --count) ids.push_back(static_cast<int32_t>(draw() % 256));
    Detokenizer stream(*tokenizer);
    std::string text;
    for (const int32_t id : ids) text += stream.push(id);
    text += stream.finish();
    ASSERT_EQ(text, tokenizer->decode(ids)) << "round " << round;
  }
  Detokenizer stream(*tokenizer);
  EXPECT_EQ(stream.push(0xe2), "");
  EXPECT_EQ(stream.push('a'), r + "a");
  EXPECT_EQ(stream.push(0xf0), "");
  EXPECT_EQ(stream.finish(), r);
  // A run of byte tokens is well-formed as a whole or not at all in Hugging Face's decoder of such vocabularies.
  const auto llama = byte_tokenizer(folder, true);
  const std::vector<int32_t> ids = {'a', 0xe2, 256, 'b', 'c'};
  EXPECT_EQ(llama->decode(ids), r + r + " bc");
}

TEST(Tokenizer, MalformedInputIsReadAsReplacementCharacters) {
  const testing::TemporaryFolder folder;
  const auto tokenizer = byte_tokenizer(folder, false);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a\xffz")), "a" + std::string(kReplacementCharacter) + "z");
  EXPECT_THROW((void)tokenizer->decode(std::vector<int32_t>{256}), InternalError);
  EXPECT_THROW((void)tokenizer->decode(std::vector<int32_t>{-1}), InternalError);
}

}  // namespace
}  // namespace kvarena
