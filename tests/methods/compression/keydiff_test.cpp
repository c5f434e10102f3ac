// KeyDiff: directions by hand, and what kvpress keeps (tests/golden/dropping_methods.py,
// decode_eviction.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using testing::OneHead;
using List = OneHead::List;

TEST(KeyDiff, KeepsKeysThatPointElsewhere) {
  const auto directions = [](int64_t tokens) {
    OneHead layer({{1, 0}, {2, 0}, {0, 3}});
    return layer.compress({{"name", "keydiff"}, {"tokens", tokens}});
  };
  EXPECT_EQ(directions(1), (List{2}));
  EXPECT_EQ(directions(2), (List{0, 2}));
}

TEST(KeyDiff, KeepsWhatKvpressKeeps) { testing::expect_golden_entries("keydiff", 12); }

TEST(KeyDiff, BelowAThresholdAndBesideAWholePromptAsTheAuthorsCodeDoesIt) {
  testing::expect_golden_entries("keydiff", 2, "decode_eviction");
}

}  // namespace
}  // namespace kvarena
