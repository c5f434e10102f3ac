// Damaged tokenizer files: an error that names the file and the component.

#include <gtest/gtest.h>

#include <random>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/model/gguf.h"
#include "harness/model/tokenizer/tokenizer.h"
#include "tests/harness/model/model_files.h"

namespace kvarena {
namespace {

using nlohmann::json;

std::string error_of(const testing::TemporaryFolder& folder, std::string_view content) {
  const auto file = folder.write("tokenizer.json", content);
  try {
    const auto tokenizer = load_tokenizer(file);
    const std::vector<int32_t> ids = tokenizer->encode("the cat <|user|> naïve 日本\n");
    (void)tokenizer->decode(ids);
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("tokenizer.json"), std::string::npos) << error.what();
    return error.what();
  }
  return {};
}

json good_file() { return json::parse(read_file(testing::golden_file("tiny_llama/tokenizer.json"))); }

/// The error after `value` was put at the JSON pointer `where`.
std::string error_with(const std::string& where, const json& value) {
  const testing::TemporaryFolder folder;
  json file = good_file();
  file[json::json_pointer(where)] = value;
  return error_of(folder, file.dump());
}

void expect_words(const std::string& error, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(error.find(word), std::string::npos) << "expected \"" << word << "\" in: " << error;
  }
}

TEST(HostileTokenizer, UnknownComponentsAreNamedWithTheirPlace) {
  expect_words(error_with("/normalizer", {{"type", "Nmt"}}), {"normalizer.type", "\"Nmt\""});
  expect_words(
      error_with("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Foo"}}}}}),
      {"normalizer.normalizers[1].type", "\"Foo\""});
  expect_words(error_with("/pre_tokenizer", {{"type", "UnicodeScripts"}}),
               {"pre_tokenizer.type", "\"UnicodeScripts\""});
  expect_words(error_with("/decoder", {{"type", "CTC"}}), {"decoder.type", "\"CTC\""});
  expect_words(error_with("/post_processor", {{"type", "Mystery"}}), {"post_processor.type", "\"Mystery\""});
  expect_words(error_with("/model/type", "Unigram"), {"model.type", "\"Unigram\""});
  expect_words(
      error_with("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}}),
      {"pre_tokenizer.pattern", "("});
  expect_words(error_with("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", "x"}}}, {"behavior", "Wild"}}),
               {"pre_tokenizer.behavior", "\"Wild\""});
  expect_words(error_with("/pre_tokenizer",
                          {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}}),
               {"pretokenizers[1]", "after ByteLevel"});
  expect_words(error_with("/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "odd"}}),
               {"prepend_scheme", "\"odd\""});
  expect_words(error_with("/decoder", {{"type", "Fuse"}}), {"ByteLevel"});
  expect_words(error_with("/model/dropout", 0.1), {"model.dropout", "0.1"});
}

TEST(HostileTokenizer, VocabulariesAndMergesThatDoNotFitAreNamed) {
  json merge = good_file()["model"]["merges"][0];
  const std::string first =
      merge.is_string() ? merge.get<std::string>() : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  expect_words(error_with("/model/vocab/zzz", -1), {"model.vocab", "zzz", "-1"});
  expect_words(error_with("/model/vocab/zzz", 2147483647), {"model.vocab", "2147483647"});
  expect_words(error_with("/model/vocab/zzz", 5), {"model.vocab", "id 5"});
  expect_words(error_with("/model/vocab/zzz", "x"), {"model.vocab", "an integer"});
  expect_words(error_with("/model/merges", {first, "nospace"}), {"model.merges", "nospace"});
  expect_words(error_with("/model/merges", {first, "q zzz"}), {"model.merges[1]", "second"});
  expect_words(error_with("/model/merges", json::array({json::array({"t", "h", "e"})})), {"model.merges[0]"});
  expect_words(error_with("/model/merges", json::array({json::array({"z", "q"})})), {"model.merges[0]", "union"});
  expect_words(error_with("/added_tokens/0/id", -4), {"added_tokens[0].id"});
  expect_words(error_with("/added_tokens/0/content", 4), {"added_tokens[0]", "content"});
  const testing::TemporaryFolder folder;
  json file = good_file();
  file.erase("model");
  expect_words(error_of(folder, file.dump()), {"model"});
  expect_words(error_of(folder, ""), {"byte 0"});
  expect_words(error_of(folder, "[]"), {"byte 0"});
}

TEST(HostileTokenizer, ReplacementsThatMakeATextGrowWithoutEndAreStopped) {
  const std::string many(200, 'a');
  const json literal = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", many}};
  const json regex = {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", many}};
  for (const json& growing : {literal, regex}) {
    expect_words(error_with("/normalizer", {{"type", "Sequence"}, {"normalizers", json(9, growing)}}),
                 {"normalizer", "longer than 268435456 bytes"});
  }
  const auto with_decoders = [](const json& decoders) {
    const testing::TemporaryFolder folder;
    json file = good_file();
    file["pre_tokenizer"] = nullptr;
    file["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
    return error_of(folder, file.dump());
  };
  const json nowhere = {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", ""}};
  EXPECT_EQ(with_decoders({nowhere, {{"type", "Fuse"}}}), "");
  expect_words(with_decoders(json(9, literal)), {"decoder", "longer than 1048576 bytes"});
}

TEST(HostileTokenizer, CutAnywhereItIsRefused) {
  const testing::TemporaryFolder folder;
  const std::string whole = read_file(testing::golden_file("tiny_llama/tokenizer.json"));
  ASSERT_EQ(error_of(folder, whole), "");
  for (size_t cut = 0; cut + 1 < whole.size(); cut += 61) {
    ASSERT_NE(error_of(folder, std::string_view(whole).substr(0, cut)), "") << "cut at " << cut;
  }
}

TEST(HostileTokenizer, FlippedBitsGiveAnErrorOrAnotherTokenizer) {
  const testing::TemporaryFolder folder;
  const std::string whole = read_file(testing::golden_file("tiny_llama/tokenizer.json"));
  std::mt19937_64 draw(31);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string damaged = whole;
    damaged[draw() % damaged.size()] ^= static_cast<char>(1U << (draw() % 8));
    if (!error_of(folder, damaged).empty()) ++refused;
  }
  EXPECT_GT(refused, 100);
}

TEST(HostileTokenizer, DamagedGzipIsRefused) {
  const testing::TemporaryFolder folder;
  const std::string whole = read_file(testing::golden_file("tokenizer_components.jsonl.gz"));
  const auto file = folder.write("tokenizer.json.gz", std::string_view(whole).substr(0, whole.size() / 2));
  EXPECT_THROW((void)load_tokenizer(file), UserError);
  EXPECT_THROW((void)load_tokenizer(folder.path() / "absent.json.gz"), UserError);
  EXPECT_THROW((void)load_tokenizer(folder.path() / "absent.json"), UserError);
}

}  // namespace
}  // namespace kvarena
