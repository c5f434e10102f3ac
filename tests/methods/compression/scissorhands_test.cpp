// Scissorhands: by hand, and what the rule keeps while decoding, restated in float64
// (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using testing::OneHead;
using testing::rows;
using List = OneHead::List;

TEST(Scissorhands, DropsTheMostIgnoredAtOnce) {
  OneHead layer(rows(4));
  layer.last_queries(2);
  (void)layer.compress({{"name", "scissorhands"}, {"history", 2}, {"recent", 1}, {"tokens", 4}});
  layer.append(rows(1));
  const std::vector<float> bits = {0, 1, 1, 3, 3};  // 0, 1, 1, 2, 2 of two queries
  std::ranges::copy(bits, layer.cache.layers[0].tail().entry_scores(0).begin());
  EXPECT_EQ(layer.settle(), (List{0, 2, 4}));  // 3 has the largest count; of 1 and 2 the older leaves; 4 is recent
}

TEST(Scissorhands, KeepsWhatTheAuthorsRuleKeeps) { testing::expect_golden_entries("scissorhands", 3); }

}  // namespace
}  // namespace kvarena
