// Logits of a tiny checkpoint of every architecture against the transformers library (tests/golden/architectures.py):
// the prompt in one pass, then token by token.

#include <gtest/gtest.h>

#include <cmath>

#include "harness/model/architectures/architecture.h"
#include "tests/support/golden_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::golden_model;
using testing::GoldenModel;

constexpr TransformerOptions kExact{.weights = kernels::DType::f32, .cache = kernels::DType::f32};
constexpr double kTolerance = 1e-4;  // of the largest logit of the row

class Architectures : public ::testing::TestWithParam<std::string> {
 protected:
  Architectures()
      : golden_(golden_model(GetParam())),
        prompt_(golden_.fixture["prompt"].get<std::vector<int32_t>>()),
        next_(golden_.fixture["next"].get<std::vector<int32_t>>()),
        model_(golden_.transformer(kExact)) {}

  /// Feeds `tokens` in one pass and compares the rows that the fixture has.
  void feed(KvCache& cache, std::span<const int32_t> tokens) {
    const int64_t first = cache.length;
    const SequencePass pass{.tokens = tokens, .cache = &cache, .logits = LogitsRows::all};
    const std::span<const float> logits = model_.forward({&pass, 1});
    const auto vocab = static_cast<size_t>(golden_.config.vocab_size);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::string position = std::to_string(first + static_cast<int64_t>(i));
      if (golden_.fixture["rows"].contains(position)) {
        compare(logits.subspan(i * vocab, vocab), golden_.fixture["rows"][position], position);
      }
    }
  }

  void compare(std::span<const float> ours, const json& row, const std::string& position) {
    const auto theirs = row.get<std::vector<double>>();
    ASSERT_EQ(ours.size(), theirs.size());
    double largest = 0;
    double apart = 0;
    for (size_t i = 0; i < theirs.size(); ++i) {
      largest = std::max(largest, std::abs(theirs[i]));
      apart = std::max(apart, std::abs(theirs[i] - static_cast<double>(ours[i])));
    }
    EXPECT_LE(apart, kTolerance * largest) << "position " << position;
    ++compared_;
  }

  GoldenModel golden_;
  std::vector<int32_t> prompt_;
  std::vector<int32_t> next_;
  Transformer model_;
  size_t compared_ = 0;
};

TEST_P(Architectures, PrefillAndStepsAgreeWithTheReferenceLibrary) {
  KvCache cache = model_.make_cache();
  cache.prompt_length = static_cast<int64_t>(prompt_.size());
  feed(cache, prompt_);
  for (const int32_t token : next_) feed(cache, {&token, 1});
  EXPECT_EQ(compared_, golden_.fixture["rows"].size());
}

TEST_P(Architectures, EveryCutOfTheSequenceAgrees) {
  for (const size_t chunk : {size_t{1}, size_t{7}, size_t{16}}) {
    SCOPED_TRACE(chunk);
    compared_ = 0;
    KvCache cache = model_.make_cache();
    cache.prompt_length = static_cast<int64_t>(prompt_.size());
    for (size_t done = 0; done < prompt_.size(); done += chunk) {
      feed(cache, std::span(prompt_).subspan(done, std::min(chunk, prompt_.size() - done)));
    }
    feed(cache, next_);
    EXPECT_EQ(compared_, golden_.fixture["rows"].size());
  }
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
