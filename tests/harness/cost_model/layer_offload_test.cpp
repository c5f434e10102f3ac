// Memory thresholds: figures worked by hand from Eq. 7 and from Algorithm 1 as it is printed, the invariants that tie
// both, and Algorithm 2 step by step.

#include "harness/cost_model/layer_offload.h"

#include <gtest/gtest.h>

#include "harness/core/random.h"

namespace kvarena::cost_model {
namespace {

/// Llama-3-8B and a head of 0.1 GB on 24 GB.
OffloadLoad edge() {
  return {.memory_bytes = 24'000'000'000,
          .weight_bytes = 16'200'000'000,
          .requests = 1,
          .layers = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .repeat = 4,
          .budget = 2048};
}

TEST(LengthThresholds, AreWhatEquation7Allows) {
  const std::vector<int64_t> s = length_thresholds(edge());
  ASSERT_EQ(s.size(), 33U);
  // (24e9 - 1.3 * 16.2e9) / (4 * 8 * 128 * 37) = 2.94e9 / 151552 = 19399.28
  EXPECT_EQ(s[0], 19399);
  // (2.94e9 - 4 * 2048 * 1024) / (4096 * 36) = 2931611392 / 147456 = 19881.26
  EXPECT_EQ(s[1], 19881);
  EXPECT_EQ(s[31], 109047);
  EXPECT_EQ(s[32], 130447);
}

TEST(LengthThresholds, AreTheLongestThatFitWhateverTheLoad) {
  const RandomStream draws(11, "loads");
  for (uint64_t i = 0; i < 200; ++i) {
    const auto draw = [&](uint64_t what, uint64_t below) {
      return static_cast<int64_t>(draws.below(below, i * 16 + what));
    };
    OffloadLoad load{.weight_bytes = 1'000'000 * (1 + draw(0, 20'000)),
                     .requests = 1 + draw(1, 32),
                     .layers = 1 + draw(2, 80),
                     .kv_heads = 1 + draw(3, 16),
                     .head_dim = 32 * (1 + draw(4, 8)),
                     .repeat = 1 + draw(5, 8),
                     .budget = 64 * (1 + draw(6, 64))};
    load.memory_bytes = load.weight_bytes * 2 + 1'000'000 * draw(7, 40'000);
    const std::vector<int64_t> s = length_thresholds(load);
    const auto memory = static_cast<double>(load.memory_bytes);
    for (int64_t k = 0; k <= load.layers; ++k) {
      if (s[k] < 0) continue;  // the buffers alone do not fit
      EXPECT_LE(needed_bytes(load, s[k], k), memory) << "load " << i << ", " << k << " offloaded";
      EXPECT_GT(needed_bytes(load, s[k] + 1, k), memory) << "load " << i << ", " << k << " offloaded";
    }
  }
}

TEST(LayerOffload, SendsTheLastLayersAwayOneByOne) {
  LayerOffload run({10, 12, 15, 20});  // three layers
  std::vector<int64_t> left;
  const auto note = [&](int64_t layer) { left.push_back(layer); };
  run.advance(9, note);
  EXPECT_TRUE(left.empty());
  run.advance(10, note);
  EXPECT_EQ(left, (std::vector<int64_t>{2}));
  EXPECT_TRUE(run.is_offloaded(2));
  EXPECT_FALSE(run.is_offloaded(1));
  run.advance(11, note);
  EXPECT_EQ(run.offloaded(), 1);
  run.advance(15, note);
  EXPECT_EQ(left, (std::vector<int64_t>{2, 1, 0}));
  run.advance(1000, note);  // past the last threshold there is nothing left to offload
  EXPECT_EQ(run.offloaded(), 3);
}

TEST(LayerOffload, ALongPromptStartsWithSeveralLayersAway) {
  LayerOffload run(length_thresholds(edge()));
  std::vector<int64_t> left;
  run.advance(length_thresholds(edge())[2] - 1, [&](int64_t layer) { left.push_back(layer); });
  EXPECT_EQ(left, (std::vector<int64_t>{31, 30}));
}

TEST(LayerOffload, WeightsThatDoNotFitSendEverythingAway) {
  OffloadLoad load = edge();
  load.memory_bytes = 16'000'000'000;
  LayerOffload run(length_thresholds(load));
  run.advance(1, [](int64_t) {});
  EXPECT_EQ(run.offloaded(), 32);
}

}  // namespace
}  // namespace kvarena::cost_model
