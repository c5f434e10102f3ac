// Speculative decoding: what is emitted stays true to the target, whatever drafts and in whatever vocabulary, and
// rounds are those of the transformers library (tests/golden/speculation.py).

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "harness/core/error.h"
#include "harness/model/tokenizer/tokenizer.h"
#include "tests/methods/verification/drafted.h"
#include "tests/support/tiny_vocabulary.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::ascii;
using testing::Decoded;
using testing::shuffled;
using testing::tiny_prompt;
using testing::write_vocabulary;

using SpecDecode = testing::Drafts;

TEST_F(SpecDecode, ATwinOfTheTargetIsAlwaysAccepted) {
  const Prefill prompt = prefill(model_, tiny_prompt(90), {});
  for (const double temperature : {0.0, 0.9}) {
    for (const char* mode : {"coupled", "rejection"}) {
      const json spec = {{"name", "spec_decode"},
                         {"draft_model", (folder() / "twin").string()},
                         {"draft_length", 6},
                         {"draft_sampling", mode}};
      const Decoded found =
          decode(prompt, spec, {.stop = {.max_new_tokens = 50}, .sampling = {.temperature = temperature, .seed = 5}});
      EXPECT_EQ(found.tokens.size(), 50U);
      for (const VerifyRound& round : found.rounds) EXPECT_EQ(round.accepted, round.drafted) << mode << temperature;
    }
  }
}

TEST_F(SpecDecode, AnotherModelIsOftenWrongAndNeverHarmful) {
  const Prefill prompt = prefill(model_, tiny_prompt(90), {});
  for (const double temperature : {0.0, 0.9}) {
    const SessionOptions options{.stop = {.max_new_tokens = 60}, .sampling = {.temperature = temperature, .seed = 5}};
    const Decoded full = decode(prompt, {{"name", "full"}}, options);
    for (const char* mode : {"coupled", "greedy"}) {
      const json spec = {{"name", "spec_decode"},
                         {"draft_model", (folder() / "other").string()},
                         {"draft_length", 4},
                         {"draft_sampling", mode}};
      const Decoded found = decode(prompt, spec, options);
      EXPECT_EQ(found.tokens, full.tokens) << mode << " at " << temperature;
      int64_t drafted = 0, accepted = 0;
      for (const VerifyRound& round : found.rounds) {
        drafted += round.drafted;
        accepted += round.accepted;
      }
      EXPECT_LT(accepted, drafted);
    }
  }
}

/// Reorders the rows of the (tied) embedding of a written checkpoint: row i becomes what row from[i] was.
void reorder_embedding(const std::filesystem::path& folder, const std::vector<int32_t>& from) {
  const std::filesystem::path path = folder / "model.safetensors";
  std::string file = (std::stringstream() << std::ifstream(path, std::ios::binary).rdbuf()).str();
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const json header = json::parse(file.substr(sizeof length, length));
  const auto offsets = header["model.embed_tokens.weight"]["data_offsets"];
  const size_t begin = sizeof length + length + offsets[0].get<size_t>();
  const size_t row = (offsets[1].get<size_t>() - offsets[0].get<size_t>()) / from.size();
  const std::string old = file.substr(begin, row * from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    std::copy_n(old.begin() + static_cast<std::ptrdiff_t>(row * from[i]), row,
                file.begin() + static_cast<std::ptrdiff_t>(begin + row * i));
  }
  std::ofstream(path, std::ios::binary) << file;
}

TEST_F(SpecDecode, ATwinWithAnotherVocabularyIsAcceptedThroughText) {
  testing::write_tiny_model(folder() / "target", 1);
  testing::write_tiny_model(folder() / "renamed", 1);
  write_vocabulary(folder() / "target", ascii());
  write_vocabulary(folder() / "renamed", shuffled());
  reorder_embedding(folder() / "renamed", shuffled());
  const auto tokenizer = load_tokenizer(folder() / "target" / "tokenizer.json");
  const Prefill prompt = prefill(model_, tiny_prompt(90), {});
  const json spec = {{"name", "spec_decode"}, {"draft_model", (folder() / "renamed").string()}, {"draft_length", 6}};
  const SessionOptions options{.stop = {.max_new_tokens = 50}, .tokenizer = tokenizer.get()};
  const Decoded found = decode(prompt, spec, options);
  EXPECT_EQ(found.tokens, decode(prompt, {{"name", "full"}}, options).tokens);
  int64_t drafted = 0;
  for (const VerifyRound& round : found.rounds) {
    EXPECT_EQ(round.accepted, round.drafted);
    drafted += round.drafted;
  }
  EXPECT_GT(drafted, 35);
  // Without text nothing says that the ids mean something else: every guess is another character.
  const Decoded blind = decode(prompt, spec, {.stop = {.max_new_tokens = 50}});
  EXPECT_EQ(blind.tokens, found.tokens);
  EXPECT_LT(blind.activity.tokens_accepted, found.activity.tokens_accepted);
}

TEST_F(SpecDecode, AnyDraftersVocabularyLeavesTheTargetsTokens) {
  testing::write_tiny_model(folder() / "target", 1);
  write_vocabulary(folder() / "target", ascii());
  testing::write_tiny_model(folder() / "pairs", 2);  // tokens of two characters, and characters that it cannot say
  write_vocabulary(folder() / "pairs", shuffled(), {{'a', 'b'}, {'t', 'h'}, {'0', '1'}, {'(', ')'}, {'.', ' '}});
  testing::write_tiny_model(folder() / "bytes", 3);  // the usual tiny vocabulary: bytes that are no characters
  const auto target = load_tokenizer(folder() / "target" / "tokenizer.json");
  const auto broken = load_tokenizer(folder() / "bytes" / "tokenizer.json");
  const Prefill prompt = prefill(model_, tiny_prompt(90), {});
  for (const double temperature : {0.0, 0.9}) {
    for (const Tokenizer* tokenizer : {target.get(), broken.get()}) {
      const SessionOptions options{
          .stop = {.max_new_tokens = 60}, .sampling = {.temperature = temperature, .seed = 5}, .tokenizer = tokenizer};
      const Decoded full = decode(prompt, {{"name", "full"}}, options);
      for (const char* drafter : {"pairs", "bytes", "target"}) {
        json spec = {{"name", "spec_decode"}, {"draft_model", (folder() / drafter).string()}};
        EXPECT_EQ(decode(prompt, spec, options).tokens, full.tokens) << drafter << " at " << temperature;
        spec = {
            {"name", "vericache"}, {"draft_length", 4}, {"drafter", {{"name", "knorm"}, {"keep", 0.5}}}, {"aux", spec}};
        EXPECT_EQ(decode(prompt, spec, options).tokens, full.tokens) << drafter << " at " << temperature;
      }
    }
  }
}

TEST_F(SpecDecode, AnAbsentDraftModelIsExplained) {
  const Prefill prompt = prefill(model_, tiny_prompt(20), {});
  const json spec = {{"name", "spec_decode"}, {"draft_model", (folder() / "nowhere").string()}};
  EXPECT_THROW((void)decode(prompt, spec, {}), UserError);
}

TEST_F(SpecDecode, DraftsAndAcceptsAsTransformersDoes) {
  testing::write_tiny_model(folder() / "smaller", 1, 2);
  testing::expect_golden_rounds("spec_decode", [](const json& one, json& spec) {
    spec["draft_model"] = (folder() / one["drafter"].get<std::string>()).string();
  });
}

}  // namespace
}  // namespace kvarena
