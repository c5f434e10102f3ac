#include "tests/support/golden_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace kvarena::testing {

void GoldenRows::feed(KvCache& cache, std::span<const int32_t> tokens) {
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

void GoldenRows::compare(std::span<const float> ours, const std::vector<double>& theirs, const std::string& position) {
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

}  // namespace kvarena::testing
