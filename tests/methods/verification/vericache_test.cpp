// VeriCache: rounds restated in float64 over the transformers library's weights (tests/golden/speculation.py; there is
// no public code), and auxiliary drafters. That any drafter is lossless is in tests/harness/engine/session_test.cpp.

#include "tests/methods/verification/drafted.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::Decoded;
using testing::tiny_prompt;

using VeriCache = testing::Drafts;

TEST_F(VeriCache, ADrafterThatIsDraftedForStaysTrueToFullKv) {
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

TEST_F(VeriCache, WhoIsDraftedForWellNeedsFewerPasses) {
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

TEST_F(VeriCache, WhoIsDraftedForInVainDraftsAsIfAlone) {
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

TEST_F(VeriCache, CompositionsThatCannotTakeEntriesBackAreRefused) {
  const json ngram = {{"name", "ngram"}};
  const auto problems = [&](const json& drafter, const json& aux) {
    return check_method({{"name", "vericache"}, {"drafter", drafter}, {"aux", aux}}, "test").size();
  };
  EXPECT_EQ(problems({{"name", "knorm"}, {"keep", 0.5}}, ngram), 0U);
  EXPECT_EQ(problems({{"name", "quest"}, {"keep", 0.5}}, ngram), 1U);
  EXPECT_EQ(problems({{"name", "knorm"}, {"keep", 0.5}}, {{"name", "early_exit"}}), 1U);
  EXPECT_EQ(problems({{"name", "knorm"}, {"keep", 0.5}}, {{"name", "knorm"}, {"keep", 0.5}}), 1U);
}

TEST_F(VeriCache, DraftsAndAcceptsAsRestated) { testing::expect_golden_rounds("vericache"); }

}  // namespace
}  // namespace kvarena
