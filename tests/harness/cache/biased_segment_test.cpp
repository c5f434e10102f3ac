// Entries with biases: one that stands for k is in attention what k copies of it are.

#include "harness/cache/biased_segment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "harness/cache/attend_plan.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

constexpr int64_t kDim = 16, kQueries = 3;
constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = kDim, .dtype = DType::f32};

struct Pair {
  explicit Pair(const LayerShape& shape = kShape)
      : few(shape, std::make_shared<MemoryLedger>()), all(shape, std::make_shared<MemoryLedger>()) {
    const std::vector<std::vector<int32_t>> copies = {{3, 1, 2}, {1, 4, 1, 1, 2}};
    for (int64_t head = 0; head < 2; ++head) {
      const int64_t n = std::ssize(copies[head]);
      const auto keys = testing::random_floats(n * kDim, "keys", static_cast<uint64_t>(head));
      const auto values = testing::random_floats(n * kDim, "values", static_cast<uint64_t>(head));
      std::vector<int32_t> positions(static_cast<size_t>(n));
      std::iota(positions.begin(), positions.end(), 0);
      std::vector<float> biases;
      int32_t next = 0;
      for (int64_t i = 0; i < n; ++i) {
        biases.push_back(std::log(static_cast<float>(copies[head][i])));
        for (int32_t copy = 0; copy < copies[head][i]; ++copy, ++next)
          all.append_to_head(head, std::vector<int32_t>{next}, &keys[i * kDim], &values[i * kDim], kDim);
      }
      few.append_to_head(head, positions, keys.data(), values.data(), biases);
    }
  }
  BiasedSegment few;
  EntrySegment all;
};

struct Attended {
  std::vector<float> out, max, sum;
};

const std::vector<float>& queries() {
  static const std::vector<float> q = testing::random_floats(kQueries * 4 * kDim, "queries");
  return q;
}
AttentionPlan plan_for(const Segment& segment) {
  return plan_of(segment, {.q = queries().data(), .q_len = kQueries, .q_stride = 4 * kDim, .position = 20});
}

/// Attention, and the logarithms of its denominators in `sum`.
Attended attention(const Segment& segment) {
  Attended found{std::vector<float>(queries().size()), std::vector<float>(kQueries * 4),
                 std::vector<float>(kQueries * 4)};
  const kernels::AttentionState state{.out = found.out.data(), .max = found.max.data(), .sum = found.sum.data()};
  kernels::init_attention(state, kQueries, 4, kDim);
  attend(plan_for(segment), state);
  kernels::finish_attention(state, kQueries, 4, kDim, found.sum.data());
  return found;
}

TEST(BiasedSegment, AttendsAsToCopies) {
  const Pair pair;
  const Attended few = attention(pair.few), all = attention(pair.all);
  for (size_t i = 0; i < all.out.size(); ++i) EXPECT_NEAR(few.out[i], all.out[i], 1e-6) << i;
  for (size_t i = 0; i < all.sum.size(); ++i) EXPECT_NEAR(few.sum[i], all.sum[i], 1e-6) << i;
}

TEST(BiasedSegment, SumsProbabilitiesOverWhatAnEntryStandsFor) {
  const Pair pair;
  const Attended all = attention(pair.all);
  std::vector<float> of_few(4 * 5), of_all(4 * 9);
  add_probabilities(plan_for(pair.few), all.sum.data(), of_few.data(), 5);
  add_probabilities(plan_for(pair.all), all.sum.data(), of_all.data(), 9);
  for (int64_t head = 0; head < 4; ++head) {
    const double first = of_all[head * 9], three = first + of_all[head * 9 + 1] + of_all[head * 9 + 2];
    EXPECT_NEAR(of_few[head * 5], head < 2 ? three : first, 1e-5) << head;
    EXPECT_NEAR(std::accumulate(&of_few[head * 5], &of_few[head * 5 + 5], 0.0), kQueries, 1e-5) << head;
  }
}

TEST(BiasedSegment, AWindowReachesThePositionsThatItAlwaysReaches) {
  LayerShape shape = kShape;
  shape.window = 19;  // the first query sees from position 2 on, the last one from 4 on
  const Pair pair(shape);
  std::vector<float> of_few(4 * 5);
  const std::vector<float> lse(kQueries * 4);
  add_probabilities(plan_for(pair.few), lse.data(), of_few.data(), 5);
  EXPECT_EQ(of_few[0], 0);
  EXPECT_EQ(of_few[1], 0);
  EXPECT_GT(of_few[2], 0);
}

TEST(BiasedSegment, ClonesAreTheSame) {
  const Pair pair;
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto copy = pair.few.clone(ledger);
  EXPECT_EQ(copy->bytes(), pair.few.bytes());
  EXPECT_EQ(ledger->current(), pair.few.bytes());
  EXPECT_EQ(attention(*copy).out, attention(pair.few).out);
}

}  // namespace
}  // namespace kvarena
