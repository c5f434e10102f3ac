#pragma once
// Comparison with the logits of a fixture.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "tests/support/golden_model.h"

namespace kvarena::testing {

inline constexpr TransformerOptions kExact{.weights = kernels::DType::f32, .cache = kernels::DType::f32};

/// Logits agree when none is further away than this share of the row's largest.
inline constexpr double kTolerance = 1e-4;

/// Feeds a fixture's tokens to a model and counts the rows that it compared.
class GoldenRows {
 public:
  GoldenRows(const nlohmann::json& fixture, Transformer& model) : fixture_(&fixture), model_(&model) {}

  /// One pass.
  void feed(KvCache& cache, std::span<const int32_t> tokens) {
    const int64_t first = cache.length;
    const SequencePass pass{.tokens = tokens, .cache = &cache, .hooks = nullptr, .logits = LogitsRows::all};
    const std::span<const float> logits = model_->forward({&pass, 1});
    const auto vocab = static_cast<size_t>(model_->config().vocab_size);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::string position = std::to_string(first + static_cast<int64_t>(i));
      const auto& rows = (*fixture_)["rows"];
      if (rows.contains(position))
        compare(logits.subspan(i * vocab, vocab), rows[position].get<std::vector<double>>(), position);
    }
  }

  [[nodiscard]] std::vector<int32_t> tokens(const char* key) const {
    return (*fixture_)[key].get<std::vector<int32_t>>();
  }
  [[nodiscard]] bool all_compared() const { return compared_ == (*fixture_)["rows"].size(); }

 private:
  void compare(std::span<const float> ours, const std::vector<double>& theirs, const std::string& position) {
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

  const nlohmann::json* fixture_;
  Transformer* model_;
  size_t compared_ = 0;
};

}  // namespace kvarena::testing
