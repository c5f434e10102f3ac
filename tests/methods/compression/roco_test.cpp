// RoCo: by hand, and what the rule keeps while decoding, restated in float64 (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using testing::OneHead;
using testing::rows;
using List = OneHead::List;

TEST(RoCo, SparesWhatSwings) {
  OneHead layer(rows(3));
  layer.last_queries(3);
  (void)layer.compress({{"name", "roco"}, {"spared", 0}, {"recent_share", 0.0}, {"tokens", 3}});
  layer.append(rows(1));
  const std::vector<float> mean = {0.30F, 0.05F, 0.06F, 0.2F};
  const std::vector<float> deviation = {0.01F, 0.30F, 0.02F, 0.02F};
  const std::span<float> sums = layer.cache.layers[0].tail().entry_scores(0);
  for (size_t i = 0; i < 4; ++i) {
    sums[3 * i] = 100 * mean[i];
    sums[3 * i + 1] = 100 * (deviation[i] * deviation[i] + mean[i] * mean[i]);
    sums[3 * i + 2] = 100;
  }
  EXPECT_EQ(layer.settle(), (List{0, 1, 3}));  // 1 has the smallest mean but is unsteady
}

TEST(RoCo, KeepsWhatTheAuthorsRuleKeeps) { testing::expect_golden_entries("roco", 3); }

}  // namespace
}  // namespace kvarena
