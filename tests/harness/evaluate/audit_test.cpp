// Comparison of two answers by an audit.

#include "harness/evaluate/audit.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_model.h"

namespace kvarena::evaluate {
namespace {

AnswerTrace answer(std::vector<int32_t> tokens, std::vector<std::string> digests) {
  AnswerTrace trace{.tokens = std::move(tokens), .digests = std::move(digests)};
  for (size_t i = 0; i < trace.tokens.size(); ++i) trace.gaps.push_back(0.5 + static_cast<double>(i));
  return trace;
}

TEST(Audit, FindsTheFirstTokenThatDiffersAndWhetherTheBitsDidBefore) {
  const AnswerTrace reference = answer({5, 6, 7}, {"a", "b", "c"});
  const Divergence equal = first_difference(reference, reference);
  EXPECT_FALSE(equal.step);
  EXPECT_TRUE(equal.same_bits);

  const Divergence other_bits = first_difference(reference, answer({5, 6, 7}, {"a", "x", "c"}));
  EXPECT_FALSE(other_bits.step);
  EXPECT_FALSE(other_bits.same_bits);

  // Equal logits, another token: the difference comes from sampling, not from the cache.
  const Divergence drawn = first_difference(reference, answer({5, 9, 7}, {"a", "b", "z"}));
  EXPECT_EQ(drawn.step, 1);
  EXPECT_EQ(drawn.gap, 1.5);
  EXPECT_TRUE(drawn.same_bits);

  const Divergence shorter = first_difference(reference, answer({5, 6}, {"a", "b"}));
  EXPECT_EQ(shorter.step, 2);
  EXPECT_EQ(shorter.gap, 2.5);
  const Divergence longer = first_difference(reference, answer({5, 6, 7, 8}, {"a", "b", "c", "d"}));
  EXPECT_EQ(longer.step, 3);
  EXPECT_EQ(longer.gap, 0);
}

TEST(Audit, TheFloorIsWhatNearlyAllShiftsLieBelow) {
  EXPECT_EQ(noise_floor({}), 0);
  std::vector<double> shifts;
  for (int i = 0; i <= 100; ++i) shifts.push_back(0.01 * i);
  const std::vector<std::vector<double>> all = {shifts};
  EXPECT_NEAR(noise_floor(all), 0.99, 1e-12);
}

TEST(Audit, TheSameModelShiftsNothingAndAnotherCacheTypeSomething) {
  Transformer model = testing::tiny_model(1);
  Transformer exact = testing::tiny_model(1, {.cache = kernels::DType::f32});
  const std::vector<int32_t> tokens = testing::tiny_prompt(80);
  const Method full;
  const Prefill prompt = prefill(model, tokens, {});
  const AnswerTrace trace = trace_answer(model, prompt, full, {.stop = {.max_new_tokens = 20}});
  ASSERT_EQ(trace.tokens.size(), 20U);
  for (size_t i = 0; i < trace.tokens.size(); ++i) {
    EXPECT_EQ(trace.best[i][0], trace.tokens[i]);
    EXPECT_NE(trace.best[i][1], trace.tokens[i]);
    EXPECT_GE(trace.gaps[i], 0);
  }
  EXPECT_EQ(gap_shifts(model, prefill(model, tokens, {}, 7), full, trace), std::vector<double>(20, 0.0));
  const std::vector<std::vector<double>> shifts = {gap_shifts(exact, prefill(exact, tokens, {}), full, trace)};
  EXPECT_GT(noise_floor(shifts), 0);
}

}  // namespace
}  // namespace kvarena::evaluate
