// LFU against a plain restatement on random traces, which stands for a reference: libraries forget the counts of what
// left.

#include "tests/methods/eviction/plain_tiers.h"

namespace kvarena::storage {
namespace {

TEST(Lfu, EqualsAPlainRestatementOnRandomTraces) { testing::expect_equals_plain_tiers("lfu"); }

TEST(Lfu, AShortTrace) {
  // With no ageing a newcomer is the least frequent at once: it goes down itself, or B before it.
  EXPECT_EQ(testing::who_leaves("lfu", {'A', 'A', 'B', 'C'}), 'B');
}

}  // namespace
}  // namespace kvarena::storage
