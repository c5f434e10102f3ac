// Sources of drafts: emitted tokens are the target's whatever was drafted.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "harness/core/error.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "harness/method/verifier.h"
#include "harness/model/tokenizer/tokenizer.h"
#include "tests/support/decoding.h"
#include "tests/support/tiny_model_files.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::Decoded;
using testing::tiny_model;
using testing::tiny_prompt;

class Drafts : public ::testing::Test {
 protected:
  static std::filesystem::path folder() {
    return std::filesystem::temp_directory_path() / ("kvarena-drafts-" + std::to_string(::getpid()));
  }
  static void SetUpTestSuite() {
    testing::write_tiny_model(folder() / "twin", 1);
    testing::write_tiny_model(folder() / "other", 2);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder()); }

  Decoded decode(const Prefill& prompt, const json& spec, SessionOptions options) {
    const int64_t new_tokens = options.stop.max_new_tokens;
    return testing::decode(model_, prompt, spec, new_tokens, std::move(options));
  }

  Transformer model_ = tiny_model();
};

TEST_F(Drafts, ATwinOfTheTargetIsAlwaysAccepted) {
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

TEST_F(Drafts, AnotherModelIsOftenWrongAndNeverHarmful) {
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

/// The bytes of a token in the byte-level alphabet.
std::string letter_of(int32_t byte) {
  const bool printable = byte > 32 && byte < 127;
  const auto code = static_cast<uint32_t>(printable ? byte : 0x100 + (byte < 33 ? byte : 33));
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

/// Writes tokenizer.json: token id i says the ASCII character order[i]; `pairs` are tokens of two characters that take
/// the places of the last ids.
void write_vocabulary(const std::filesystem::path& folder, const std::vector<int32_t>& order,
                      const std::vector<std::pair<char, char>>& pairs = {}) {
  json vocabulary, merges = json::array();
  const size_t letters = order.size() - pairs.size();
  for (size_t id = 0; id < letters; ++id) vocabulary[letter_of(order[id])] = id;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::string one = letter_of(pairs[i].first), two = letter_of(pairs[i].second);
    vocabulary[one + two] = letters + i;
    merges.push_back(one + " " + two);
  }
  json tokenizer = json::parse(std::ifstream(folder / "tokenizer.json"));
  tokenizer["model"]["vocab"] = vocabulary;
  tokenizer["model"]["merges"] = merges;
  std::ofstream(folder / "tokenizer.json") << tokenizer;
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

/// The target's vocabulary: all of ASCII, a token a character.
std::vector<int32_t> ascii() {
  std::vector<int32_t> order(128);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// ASCII characters under shuffled ids.
std::vector<int32_t> shuffled() {
  std::vector<int32_t> order = ascii();
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>((i * 37 + 11) % order.size());
  return order;
}

TEST_F(Drafts, ATwinWithAnotherVocabularyIsAcceptedThroughText) {
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

TEST_F(Drafts, AnyDraftersVocabularyLeavesTheTargetsTokens) {
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

TEST_F(Drafts, AnAbsentDraftModelIsExplained) {
  const Prefill prompt = prefill(model_, tiny_prompt(20), {});
  const json spec = {{"name", "spec_decode"}, {"draft_model", (folder() / "nowhere").string()}};
  EXPECT_THROW((void)decode(prompt, spec, {}), UserError);
}

TEST_F(Drafts, PromptLookupFindsTheEarliestLongestMatch) {
  const auto method = make_method({{"name", "ngram"}}, "test");
  const auto ngram = std::get<TextRule>(method->verifier()->drafter());
  using Tokens = std::vector<int32_t>;
  EXPECT_EQ(ngram.propose(Tokens{1, 2, 3, 4, 1, 2, 3}, 10), (Tokens{4, 1, 2, 3}));
  EXPECT_EQ(ngram.propose(Tokens{1, 2, 3, 4, 1, 2, 3}, 2), (Tokens{4, 1}));
  EXPECT_EQ(ngram.propose(Tokens{3, 7, 9, 3, 8, 3}, 1), (Tokens{7}));  // a 1-gram, its earliest place
  EXPECT_EQ(ngram.propose(Tokens{1, 2, 3}, 10), (Tokens{}));           // never seen before
  EXPECT_EQ(ngram.propose(Tokens{5, 5}, 3), (Tokens{5}));              // may overlap itself, not be itself
  EXPECT_EQ(ngram.propose(Tokens{5}, 3), (Tokens{}));
}

TEST_F(Drafts, AllLayersDraftPerfectlyAndFewerNeverChangeTheOutput) {
  const Prefill prompt = prefill(model_, tiny_prompt(90), {});
  const SessionOptions options{.stop = {.max_new_tokens = 50}};
  const Decoded full = decode(prompt, {{"name", "full"}}, options);
  for (const double share : {0.3, 0.7, 1.0}) {
    const Decoded found = decode(prompt, {{"name", "early_exit"}, {"layers", share}, {"draft_length", 5}}, options);
    EXPECT_EQ(found.tokens, full.tokens) << share;
    if (share < 1) continue;
    for (const VerifyRound& round : found.rounds) EXPECT_EQ(round.accepted, round.drafted);
  }
}

TEST_F(Drafts, ADrafterThatIsDraftedForStaysTrueToFullKv) {
  const Prefill prompt =
      prefill(model_, tiny_prompt(220), make_method({{"name", "h2o"}, {"keep", 0.5}}, "test")->needs());
  const std::vector<json> drafters = {{{"name", "streaming_llm"}, {"keep", 0.3}},
                                      {{"name", "h2o"}, {"keep", 0.3}},  // evicts and remembers while decoding
                                      {{"name", "kivi"}, {"bits", 4}, {"group_size", 16}, {"residual_length", 16}}};
  const std::vector<json> auxiliaries = {
      {{"name", "ngram"}, {"draft_length", 3}},
      {{"name", "spec_decode"}, {"draft_model", (folder() / "other").string()}, {"draft_length", 2}},
      {{"name", "spec_decode"}, {"draft_model", (folder() / "twin").string()}, {"draft_length", 4}}};
  for (const double temperature : {0.0, 0.9}) {
    const SessionOptions options{.stop = {.max_new_tokens = 70}, .sampling = {.temperature = temperature, .seed = 5}};
    const Decoded full = decode(prompt, {{"name", "full"}}, options);
    for (const json& drafter : drafters) {
      for (const json& aux : auxiliaries) {
        const json spec = {{"name", "vericache"}, {"draft_length", 5}, {"drafter", drafter}, {"aux", aux}};
        const Decoded found = decode(prompt, spec, options);
        EXPECT_EQ(found.tokens, full.tokens) << spec << " at " << temperature;
      }
    }
  }
}

TEST_F(Drafts, WhoIsDraftedForWellNeedsFewerPasses) {
  const Prefill prompt = prefill(model_, tiny_prompt(90), {});
  const json twin = {{"name", "spec_decode"}, {"draft_model", (folder() / "twin").string()}, {"draft_length", 4}};
  const json whole = {{"name", "knorm"}, {"keep", 1.0}};
  const json spec = {{"name", "vericache"}, {"draft_length", 3}, {"drafter", whole}, {"aux", twin}};
  for (const char* mode : {"coupled", "rejection"}) {
    json sampled = spec;
    sampled["draft_sampling"] = mode;
    for (const double temperature : {0.0, 0.9}) {
      const SessionOptions options{.stop = {.max_new_tokens = 61}, .sampling = {.temperature = temperature, .seed = 5}};
      const Decoded found = decode(prompt, sampled, options);
      if (sampled["draft_sampling"] == "coupled") {
        EXPECT_EQ(found.tokens, decode(prompt, {{"name", "full"}}, options).tokens);
      }
      ASSERT_EQ(found.rounds.size(), 4U) << mode << temperature;  // 60 tokens by 15 and one each
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(found.rounds[i].drafted, 15);  // 3 passes, each of which confirms 4 tokens and adds one
        EXPECT_EQ(found.rounds[i].accepted, 15);
      }
    }
  }
}

TEST_F(Drafts, WhoIsDraftedForInVainDraftsAsIfAlone) {
  // Rejected rows leave nothing behind: neither what they attended to, nor what was merged or packed for them.
  const json other = {{"name", "spec_decode"}, {"draft_model", (folder() / "other").string()}, {"draft_length", 2}};
  const SessionOptions options{.stop = {.max_new_tokens = 40}};
  const std::vector<json> drafters = {{{"name", "h2o"}, {"keep", 0.3}},
                                      {{"name", "cam"}, {"keep", 0.3}},
                                      {{"name", "kivi"}, {"bits", 2}, {"group_size", 16}, {"residual_length", 16}}};
  for (const json& drafter : drafters) {
    json spec = {{"name", "vericache"}, {"draft_length", 5}, {"drafter", drafter}};
    const Prefill prompt = prefill(model_, tiny_prompt(220), make_method(spec, "test")->needs());
    const Decoded alone = decode(prompt, spec, options);
    spec["aux"] = other;
    const Decoded aided = decode(prompt, spec, options);
    size_t same = 0;  // rounds before the auxiliary model is right by chance
    for (; same < alone.rounds.size() && aided.rounds[same].drafted == alone.rounds[same].drafted; ++same) {
      EXPECT_EQ(aided.rounds[same].accepted, alone.rounds[same].accepted) << spec << " round " << same;
    }
    EXPECT_GE(same, 1U) << spec;
  }
}

TEST_F(Drafts, CompositionsThatCannotTakeEntriesBackAreRefused) {
  const json ngram = {{"name", "ngram"}};
  const auto problems = [&](const json& drafter, const json& aux) {
    return check_method({{"name", "vericache"}, {"drafter", drafter}, {"aux", aux}}, "test").size();
  };
  EXPECT_EQ(problems({{"name", "knorm"}, {"keep", 0.5}}, ngram), 0U);
  EXPECT_EQ(problems({{"name", "quest"}, {"keep", 0.5}}, ngram), 1U);
  EXPECT_EQ(problems({{"name", "knorm"}, {"keep", 0.5}}, {{"name", "early_exit"}}), 1U);
  EXPECT_EQ(problems({{"name", "knorm"}, {"keep", 0.5}}, {{"name", "knorm"}, {"keep", 0.5}}), 1U);
}

TEST_F(Drafts, LeavingEarlyEqualsAShorterModelAndDisturbsNoOther) {
  // Sequences that leave after 1, 2 and all 3 layers in one pass, against each alone.
  const std::vector<std::vector<int32_t>> prompts = {tiny_prompt(9, 1), tiny_prompt(5, 2), tiny_prompt(7, 3),
                                                     tiny_prompt(4, 4)};
  const std::vector<int64_t> exits = {2, 0, 1, 3};
  std::vector<KvCache> caches;
  for (size_t i = 0; i < prompts.size(); ++i) caches.push_back(model_.make_cache());
  std::vector<SequencePass> batch;
  for (size_t i = 0; i < prompts.size(); ++i) {
    batch.push_back({.tokens = prompts[i], .cache = &caches[i], .logits = LogitsRows::all, .exit_after = exits[i]});
  }
  const std::span<const float> rows = model_.forward(batch);
  const std::vector<float> together(rows.begin(), rows.end());
  size_t at = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    KvCache cache = model_.make_cache();
    SequencePass alone = batch[i];
    alone.cache = &cache;
    const std::span<const float> own = model_.forward({&alone, 1});
    EXPECT_TRUE(std::ranges::equal(own, std::span(together).subspan(at, own.size()))) << i;
    at += own.size();
    for (int64_t layer = 0; layer < 3; ++layer) {
      const bool ran = exits[i] == 0 || layer < exits[i];
      EXPECT_EQ(caches[i].layers[layer].entries(0), ran ? static_cast<int64_t>(prompts[i].size()) : 0);
    }
  }
  EXPECT_EQ(at, together.size());
}

}  // namespace
}  // namespace kvarena
