// Knorm: by hand, and what kvpress keeps (tests/golden/dropping_methods.py,
// decode_eviction.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using testing::OneHead;
using List = OneHead::List;

TEST(Knorm, KeepsShortKeys) {
  OneHead norms({{3}, {1}, {2}});
  EXPECT_EQ(norms.compress({{"name", "knorm"}, {"tokens", 2}}), (List{1, 2}));
}

TEST(Knorm, KeepsWhatKvpressKeeps) { testing::expect_golden_entries("knorm", 9); }

TEST(Knorm, KeepsWhatReachesAThresholdAndLeavesDecodingToAnotherScorer) {
  testing::expect_golden_entries("knorm", 2, "decode_eviction");
}

}  // namespace
}  // namespace kvarena
