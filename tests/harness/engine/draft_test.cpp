// Where drafts come from, and that what is emitted stays true to the target.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/engine/session.h"
#include "harness/method/registry.h"
#include "harness/method/verifier.h"
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

TEST_F(Drafts, AnAbsentDraftModelIsExplained) {
  const Prefill prompt = prefill(model_, tiny_prompt(20), {});
  const json spec = {{"name", "spec_decode"}, {"draft_model", (folder() / "nowhere").string()}};
  EXPECT_THROW((void)decode(prompt, spec, {}), UserError);
}

TEST_F(Drafts, PromptLookupFindsTheEarliestLongestMatch) {
  const auto method = make_method({{"name", "ngram"}}, "test");
  const Verifier& ngram = *method->verifier();
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
