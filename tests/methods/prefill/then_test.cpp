// Sparse prefill with another method behind it: every compressor and retriever works as after a full prefill.

#include "tests/support/decoding.h"
#include "tests/support/registered_method.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::Decoded;

class Then : public testing::RegisteredMethod {
 protected:
  /// A-shape whose window holds so many entries, with the method behind it.
  [[nodiscard]] json spec(int64_t local) const {
    return {{"name", "a_shape"}, {"sinks", 16}, {"local", local}, {"then", testing::active_settings(entry())}};
  }
  /// Whether it may follow; a refusal has a reason that is true of the method.
  [[nodiscard]] bool takes_over() const {
    const std::vector<std::string> problems = check_method(spec(64), "test");
    const auto method = make_method(testing::active_settings(entry()), "test");
    const Needs needs = method->needs();
    const std::pair<const char*, bool> reasons[] = {
        {"reads prompts in its own way", method->prompt_pass() > 0 || method->pruner() != nullptr},
        {"reads a guess in each pass", method->looks_ahead()},
        {"needs the attention of all queries", needs.prompt_attention || !needs.statistics.empty()},
        {"looks at what full KV answers", needs.future > 0}};
    for (const std::string& problem : problems) {
      EXPECT_TRUE(std::ranges::any_of(reasons, [&](const auto& reason) {
        return reason.second && problem.find(reason.first) != std::string::npos;
      })) << problem;
    }
    return problems.empty();
  }
};

TEST_P(Then, WhereEveryEntryIsSeenItChangesNothingBitForBit) {
  if (!takes_over()) GTEST_SKIP() << GetParam() << " is refused";
  const Prefill start = prompt(300);
  const std::vector<int32_t> question = testing::tiny_prompt(31, 77);
  for (const bool asks : {false, true}) {
    const SessionOptions options{.question = asks ? question : std::vector<int32_t>{}};
    const Decoded alone = testing::decode(model_, start, testing::active_settings(entry()), 24, options);
    const Decoded behind = testing::decode(model_, start, spec(300), 24, options);
    EXPECT_EQ(behind.logits, alone.logits);
    EXPECT_EQ(behind.tokens, alone.tokens);
    EXPECT_EQ(behind.activity.entries_dropped, alone.activity.entries_dropped);
    EXPECT_EQ(behind.activity.entries_packed, alone.activity.entries_packed);
    EXPECT_EQ(behind.activity.entries_skipped, alone.activity.entries_skipped);
  }
}

TEST_P(Then, BothActOnALongerPrompt) {
  if (!takes_over()) GTEST_SKIP() << GetParam() << " is refused";
  const Prefill start = prompt(400);
  const Decoded alone = testing::decode(model_, start, testing::active_settings(entry()), 8);
  const Decoded both = testing::decode(model_, start, spec(64), 8);
  EXPECT_EQ(both.failure, "");
  EXPECT_NE(both.logits, alone.logits);
  EXPECT_GT(both.activity.entries_skipped, alone.activity.entries_skipped);
  EXPECT_EQ(both.activity.entries_packed > 0, alone.activity.entries_packed > 0);
}

/// Refused with the reason: methods that need the attention of all queries, or read prompts in their own way.
TEST(ThenRefuses, WhatCannotFollow) {
  for (const auto& [name, reason] : {std::pair{"h2o", "the attention of all queries"},
                                     {"infllm", "reads prompts"},
                                     {"tri_shape", "reads prompts"}}) {
    json inner = {{"name", name}};
    if (inner["name"] == "h2o") inner["keep"] = 0.5;
    const auto problems = check_method({{"name", "a_shape"}, {"then", inner}}, "test");
    ASSERT_EQ(problems.size(), 1U) << name;
    EXPECT_NE(problems.front().find(reason), std::string::npos) << problems.front();
  }
}

std::vector<std::string> compressors_and_retrievers() {
  std::vector<std::string> names;
  for (const MethodEntry& entry : method_registry()) {
    if (entry.family == Family::compression || entry.family == Family::retrieval) names.push_back(entry.info.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Methods, Then, ::testing::ValuesIn(compressors_and_retrievers()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kvarena
