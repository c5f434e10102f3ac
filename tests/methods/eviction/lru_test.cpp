// LRU against a plain restatement on random traces and against cachetools (tests/golden/eviction_policies.py).

#include "tests/methods/eviction/plain_tiers.h"

namespace kvarena::storage {
namespace {

TEST(Lru, EqualsAPlainRestatementOnRandomTraces) { testing::expect_equals_plain_tiers("lru"); }

TEST(Lru, AShortTrace) { EXPECT_EQ(testing::who_leaves("lru", {'A', 'B', 'A', 'C'}), 'B'); }

TEST(Lru, HoldsWhatCachetoolsHolds) { testing::expect_golden_tier("lru"); }

}  // namespace
}  // namespace kvarena::storage
