// Prompt lookup by hand, and against the transformers library (tests/golden/speculation.py).

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/method/registry.h"
#include "harness/method/verifier.h"
#include "tests/support/golden.h"

namespace kvarena {
namespace {

using nlohmann::json;

TEST(NGram, FindsTheEarliestLongestMatch) {
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

TEST(NGram, ProposesWhatTransformersProposes) {
  const json cases = testing::golden("speculation/ngram.json")["cases"];
  ASSERT_EQ(cases.size(), 3 * 39U);
  for (const json& one : cases) {
    const auto method = make_method(one["spec"], "golden");
    EXPECT_EQ(std::get<TextRule>(method->verifier()->drafter())
                  .propose(one["history"].get<std::vector<int32_t>>(), one["limit"]),
              one["proposed"].get<std::vector<int32_t>>())
        << one;
  }
}

}  // namespace
}  // namespace kvarena
