// FIFO against a plain restatement on random traces and against cachetools (tests/golden/eviction_policies.py).

#include "tests/methods/eviction/plain_tiers.h"

namespace kvarena::storage {
namespace {

TEST(Fifo, EqualsAPlainRestatementOnRandomTraces) { testing::expect_equals_plain_tiers("fifo"); }

TEST(Fifo, AShortTrace) { EXPECT_EQ(testing::who_leaves("fifo", {'A', 'B', 'A', 'C'}), 'A'); }

TEST(Fifo, HoldsWhatCachetoolsHolds) { testing::expect_golden_tier("fifo"); }

}  // namespace
}  // namespace kvarena::storage
