// Keyformer: heavy hitters without its noise, and what the rule keeps with and without it, restated in float64
// (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"

namespace kvarena {
namespace {

TEST(Keyformer, WithoutNoiseIsHeavyHitters) {
  Transformer model = testing::tiny_model();
  const auto plain =
      make_method({{"name", "keyformer"}, {"gumbel", false}, {"recent_share", 0.5}, {"keep", 0.4}}, "test");
  const auto h2o = make_method({{"name", "h2o"}, {"keep", 0.4}}, "test");
  const Prefill start = prefill(model, testing::tiny_prompt(80), combine(plain->needs(), h2o->needs()));
  Activity activity;
  const KvCache a = compress_prompt(start, *plain, activity);
  const KvCache b = compress_prompt(start, *h2o, activity);
  for (size_t layer = 0; layer < 3; ++layer) {
    for (int64_t head = 0; head < 2; ++head) {
      EXPECT_EQ(a.layers[layer].tail().positions(head), b.layers[layer].tail().positions(head));
    }
  }
}

TEST(Keyformer, KeepsWhatTheAuthorsRuleKeeps) { testing::expect_golden_entries("keyformer", 6); }

}  // namespace
}  // namespace kvarena
