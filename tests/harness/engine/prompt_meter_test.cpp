// Shares of a prompt's attention, against softmax in double.

#include "harness/engine/session/prompt_meter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/cache/attend_plan.h"
#include "harness/cache/entry_ranges_view.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using testing::random_floats;

constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::f32};
constexpr int64_t kTokens = 150, kRow = 2 * 16, kQuery = 4 * 16;

/// Each head sees another share of the first entries, and all heads the 20 newest.
bool sees(int64_t head, int64_t row, int64_t entry) { return entry < 10 * (head + 1) || entry > row - 20; }

TEST(PromptMeter, SharesAreThoseOfSoftmaxInDouble) {
  KvCache cache(1, kShape);
  const auto keys = random_floats(kTokens * kRow, "keys"), q = random_floats(kTokens * kQuery, "q");
  LayerCache& layer = cache.layers[0];
  layer.append(keys.data(), keys.data(), kTokens, kRow, 0);
  const LayerQueries queries{.q = q.data(), .q_len = kTokens, .q_stride = kQuery};
  RowRanges sinks{.first = 0, .count = kTokens, .heads = {}}, newest{.first = 0, .count = kTokens, .heads = {}};
  newest.window = 20;
  for (int32_t head = 0; head < 4; ++head) {
    sinks.heads.push_back({{0, 10 * (head + 1)}});
    newest.heads.push_back({{10 * (head + 1), kTokens}});
  }
  layer.view = std::make_unique<EntryRangesView>(layer.tail(), std::vector{sinks, newest}, layer.ledger());

  std::vector<float> out(q.size()), running(2 * kTokens * 4), lse(kTokens * 4);
  const kernels::AttentionState state{.out = out.data(), .max = running.data(), .sum = running.data() + kTokens * 4};
  kernels::init_attention(state, kTokens, 4, 16);
  attend(layer.plan(queries), state);
  kernels::finish_attention(state, kTokens, 4, 16, lse.data());
  PromptMeter meter;
  meter.after_attention(0, layer, queries, lse.data());

  double kept = 0, pairs = 0;
  for (int64_t head = 0; head < 4; ++head) {
    for (int64_t row = 0; row < kTokens; ++row) {
      double seen = 0, all = 0;
      for (int64_t entry = 0; entry <= row; ++entry) {
        double score = 0;
        for (int64_t c = 0; c < 16; ++c)
          score += double{q[row * kQuery + head * 16 + c]} * keys[entry * kRow + head / 2 * 16 + c];
        const double weight = std::exp(score / 4);
        all += weight;
        seen += sees(head, row, entry) ? weight : 0;
        pairs += sees(head, row, entry) ? 1 : 0;
      }
      kept += seen / all / (4 * kTokens);
    }
  }
  ASSERT_EQ(meter.layers().size(), 1U);
  EXPECT_NEAR(meter.mean().kept, kept, 1e-5);
  EXPECT_NEAR(meter.mean().computed, pairs / (4 * kTokens * (kTokens + 1) / 2), 1e-9);
  EXPECT_LT(kept, 0.9);
}

TEST(PromptMeter, WithoutAViewEverythingIsComputedAndKept) {
  KvCache cache(1, kShape);
  const auto keys = random_floats(kRow, "keys"), q = random_floats(kQuery, "q");
  cache.layers[0].append(keys.data(), keys.data(), 1, kRow, 0);
  PromptMeter meter;
  meter.after_attention(0, cache.layers[0], {.q = q.data(), .q_len = 1, .q_stride = kQuery}, nullptr);
  EXPECT_EQ(meter.mean().computed, 1);
  EXPECT_EQ(meter.mean().kept, 1);
}

}  // namespace
}  // namespace kvarena
