// Encodings and decodings against Hugging Face `tokenizers`.

#include <gtest/gtest.h>

#include "harness/model/gguf.h"
#include "harness/model/tokenizer/tokenizer.h"
#include "tests/harness/model/model_files.h"

namespace kvarena {
namespace {

using nlohmann::json;

constexpr EncodeOptions kPlain{.add_special = false};

std::unique_ptr<Tokenizer> smollm2() { return load_gguf_tokenizer(GgufFile(testing::smollm2_file())); }

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special) {
  Detokenizer stream(tokenizer, {.skip_special = skip_special});
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

void expect_case(const Tokenizer& tokenizer, const json& one) {
  const auto text = one["text"].get<std::string>();
  const auto ids = one["ids"].get<std::vector<int32_t>>();
  EXPECT_EQ(tokenizer.encode(text, kPlain), ids) << one["text"];
  EXPECT_EQ(tokenizer.encode(text), one["with_special"].get<std::vector<int32_t>>()) << one["text"];
  EXPECT_EQ(tokenizer.decode(ids, {.skip_special = false}), one["decoded"].get<std::string>()) << one["text"];
  EXPECT_EQ(tokenizer.decode(ids), one["decoded_plain"].get<std::string>()) << one["text"];
}

TEST(SmolLm2Tokenizer, EncodesAndDecodesAsHuggingFaceDoes) {
  if (!std::filesystem::exists(testing::smollm2_file())) GTEST_SKIP() << "no " << testing::smollm2_file();
  const auto tokenizer = smollm2();
  const std::vector<json> lines = testing::read_jsonl(testing::golden_file("smollm2_tokens.jsonl"));
  ASSERT_GT(lines.size(), 150U);
  for (const json& line : lines) {
    if (line.contains("made_by")) continue;
    const auto text = line["text"].get<std::string>();
    const auto ids = line["ids"].get<std::vector<int32_t>>();
    ASSERT_EQ(tokenizer->encode(text, kPlain), ids) << line["text"];
    EXPECT_EQ(tokenizer->decode(ids, {.skip_special = false}), line["decoded"].get<std::string>()) << line["text"];
    EXPECT_EQ(tokenizer->decode(ids), line["decoded_plain"].get<std::string>()) << line["text"];
    EXPECT_EQ(streamed(*tokenizer, ids, false), line["decoded"].get<std::string>()) << line["text"];
  }
}

TEST(Gemma3Tokenizer, EncodesAndDecodesAsSentencePieceDoes) {
  if (!std::filesystem::exists(testing::gemma3_file())) GTEST_SKIP() << "no " << testing::gemma3_file();
  const auto tokenizer = load_gguf_tokenizer(GgufFile(testing::gemma3_file()));
  size_t compared = 0;
  for (const json& line : testing::read_jsonl(testing::golden_file("gemma3_tokens.jsonl"))) {
    if (line.contains("made_by")) continue;
    const auto ids = line["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer->encode(line["text"].get<std::string>(), kPlain), ids) << line["text"];
    EXPECT_EQ(tokenizer->decode(ids), line["decoded"].get<std::string>()) << line["text"];
    EXPECT_EQ(streamed(*tokenizer, ids, false), line["decoded"].get<std::string>()) << line["text"];
    ++compared;
  }
  EXPECT_EQ(compared, 93U);
  EXPECT_EQ(tokenizer->encode("<start_of_turn>user\nHi<end_of_turn>"),
            (std::vector<int32_t>{2, 105, 2364, 107, 10979, 106}));
}

/// Each line of the file is a tokenizer of its own with encodings by Hugging Face.
TEST(TokenizerComponents, WorkAsInHuggingFaceTokenizers) {
  const testing::TemporaryFolder folder;
  size_t tokenizers = 0;
  for (const json& line : testing::read_jsonl(testing::golden_file("tokenizer_components.jsonl.gz"))) {
    if (line.contains("made_by")) continue;
    ++tokenizers;
    SCOPED_TRACE(line["name"].get<std::string>());
    const auto tokenizer = load_tokenizer(folder.write("tokenizer.json", line["tokenizer"].dump()));
    for (const json& one : line["cases"]) expect_case(*tokenizer, one);
  }
  EXPECT_GE(tokenizers, 40U);
}

TEST(WordPieceTokenizer, EncodesTheEmbeddingModelsTextsAsHuggingFaceDoes) {
  const auto file = testing::installed_models() / "all-minilm-l6-v2" / "tokenizer.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  const auto tokenizer = load_tokenizer(file);
  size_t compared = 0;
  for (const json& one : testing::read_jsonl(testing::golden_file("minilm_tokens.jsonl"))) {
    if (one.contains("made_by")) continue;
    expect_case(*tokenizer, one);
    ++compared;
  }
  EXPECT_GT(compared, 100U);
}

class SharedGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(SharedGolden, EveryLineEncodesAsHuggingFaceDoes) {
  const std::filesystem::path folder = testing::shared_tokenizers();
  if (!std::filesystem::exists(folder / "golden.jsonl.gz")) GTEST_SKIP() << "no " << folder;
  const auto tokenizer = load_tokenizer(folder / GetParam() / "tokenizer.json.gz");
  size_t compared = 0;
  for (const json& line : testing::read_jsonl(folder / "golden.jsonl.gz")) {
    const auto ids = line["ids"][GetParam()].get<std::vector<int32_t>>();
    const auto text = line["text"].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text, kPlain), ids) << line["text"];
    EXPECT_EQ(streamed(*tokenizer, ids, false), tokenizer->decode(ids, {.skip_special = false})) << line["text"];
    ++compared;
  }
  EXPECT_EQ(compared, 506U);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, SharedGolden, ::testing::Values("qwen3", "llama3", "deepseek_v3", "mistral_v1"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace kvarena
