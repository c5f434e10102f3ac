// H2O: heavy hitters by hand, and what the rule keeps while decoding, restated in float64
// (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using testing::OneHead;
using testing::rows;
using List = OneHead::List;

TEST(H2o, KeepsTheHeavyHittersOfFourQueries) {
  OneHead layer(rows(4));
  layer.seen.prompt_attention = {1.8F, 1.0F, 0.8F, 0.4F};  // columns of [1], [.5,.5], [.2,.3,.5], [.1,.2,.3,.4]
  EXPECT_EQ(layer.compress({{"name", "h2o"}, {"tokens", 2}}), (List{0, 3}));
}

TEST(H2o, KeepsWhatTheAuthorsRuleKeeps) { testing::expect_golden_entries("h2o", 6); }

}  // namespace
}  // namespace kvarena
