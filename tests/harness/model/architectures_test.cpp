// Logits of a tiny checkpoint of every architecture against the transformers library (tests/golden/architectures.py):
// the prompt in one pass, then token by token; and the 32 tokens that each would go on with.

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/model/architectures/architecture.h"
#include "tests/support/golden_rows.h"

namespace kvarena {
namespace {

using testing::golden_model;
using testing::GoldenRows;

class Architectures : public ::testing::TestWithParam<std::string> {
 protected:
  Architectures()
      : golden_(golden_model(GetParam())),
        prompt_(golden_.fixture["prompt"].get<std::vector<int32_t>>()),
        next_(golden_.fixture["next"].get<std::vector<int32_t>>()),
        model_(golden_.transformer(testing::kExact)) {}

  /// A cache that knows how long the prompt will be.
  [[nodiscard]] KvCache start() const {
    KvCache cache = model_.make_cache();
    cache.prompt_length = static_cast<int64_t>(prompt_.size());
    return cache;
  }

  testing::GoldenModel golden_;
  std::vector<int32_t> prompt_;
  std::vector<int32_t> next_;
  Transformer model_;
};

TEST_P(Architectures, PrefillAndStepsAgreeWithTheReferenceLibrary) {
  GoldenRows rows(golden_.fixture, model_);
  KvCache cache = start();
  rows.feed(cache, prompt_);
  for (const int32_t token : next_) rows.feed(cache, {&token, 1});
  EXPECT_TRUE(rows.all_compared());
}

TEST_P(Architectures, EveryCutOfTheSequenceAgrees) {
  for (const size_t chunk : {size_t{1}, size_t{7}, size_t{16}}) {
    SCOPED_TRACE(chunk);
    GoldenRows rows(golden_.fixture, model_);
    KvCache cache = start();
    for (size_t done = 0; done < prompt_.size(); done += chunk) {
      rows.feed(cache, std::span(prompt_).subspan(done, std::min(chunk, prompt_.size() - done)));
    }
    rows.feed(cache, next_);
    EXPECT_TRUE(rows.all_compared());
  }
}

TEST_P(Architectures, GreedyTokensAreThoseOfTheReferenceLibrary) {
  if (!golden_.fixture.contains("greedy")) GTEST_SKIP() << "the library's version of the fixture was not at hand";
  const auto expected = golden_.fixture["greedy"].get<std::vector<int32_t>>();
  KvCache cache = start();
  std::vector<int32_t> tokens;
  std::span<const int32_t> fed = prompt_;
  while (tokens.size() < expected.size()) {
    const SequencePass pass{.tokens = fed, .cache = &cache};
    const std::span<const float> logits = model_.forward({&pass, 1});
    tokens.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
    fed = std::span(tokens).last(1);
  }
  EXPECT_EQ(tokens, expected);
}

INSTANTIATE_TEST_SUITE_P(All, Architectures, ::testing::ValuesIn(testing::golden_model_names()),
                         [](const auto& info) { return info.param; });

TEST(ArchitectureRegister, EveryFamilyHasAFixture) {
  for (const Architecture* architecture : architectures()) {
    bool found = false;
    for (const std::string& name : testing::golden_model_names()) {
      found = found || golden_model(name).config.architecture == architecture->name;
    }
    EXPECT_TRUE(found) << architecture->name;
  }
}

}  // namespace
}  // namespace kvarena
