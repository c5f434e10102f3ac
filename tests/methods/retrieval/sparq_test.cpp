// SparQ: the authors' attention (tests/golden/weighted_retrieval.py), and what the mean value stands for.

#include "tests/methods/retrieval/weighted_support.h"

namespace kvarena {
namespace {

TEST(SparQ, AttendsAsTheAuthorsCode) { testing::expect_golden_attention("sparq", 2e-6); }

/// With all channels the scores are exact, so that the mean value has the very mass that is not attended: the output is
/// the attention of what is attended times its mass, and the mean value times the rest.
TEST(SparQ, TheMeanValueHasTheMassOfTheRest) {
  constexpr int64_t n = 90;
  const nlohmann::json spec = {{"name", "sparq"}, {"rank", 16}, {"tokens", 12}};
  const testing::WeightedStep step(spec, n, 5), all({{"name", "full"}}, n, 5);
  const auto q = testing::random_floats(64, "q", 5);
  const AttentionPlan plan = step.layer().plan({.q = q.data(), .q_len = 1, .q_stride = 64, .position = n});
  ASSERT_EQ(plan.items.size(), 2U);
  for (int64_t head = 0; head < 4; ++head) {
    EXPECT_EQ(positions_of(plan.items[0], head).size(), 12U);
    EXPECT_EQ(positions_of(plan.items[1], head).size(), 0U);
    std::vector<float> keys((n + 1) * 16), values(keys.size());
    step.layer().tail().read(head / 2, keys.data(), values.data());
    std::vector<double> logits(n + 1), expected(16);
    double total = 0;
    for (int64_t i = 0; i <= n; ++i) {
      for (int64_t c = 0; c < 16; ++c) logits[i] += 3.0 * q[head * 16 + c] * keys[i * 16 + c] / 4;
      total += std::exp(logits[i]);
    }
    double mass = 0;
    for (const int32_t i : positions_of(plan.items[0], head)) {
      mass += std::exp(logits[i]) / total;
      for (int64_t c = 0; c < 16; ++c) expected[c] += std::exp(logits[i]) / total * values[i * 16 + c];
    }
    for (int64_t c = 0; c < 16; ++c) {
      double mean = 0;
      for (int64_t i = 0; i <= n; ++i) mean += values[i * 16 + c] / static_cast<double>(n + 1);
      EXPECT_NEAR(step.attended()[head * 16 + c], expected[c] + (1 - mass) * mean, 2e-6) << "query head " << head;
    }
  }
}

}  // namespace
}  // namespace kvarena
