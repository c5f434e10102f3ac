// CurDKV: norms by hand, and what kvpress keeps (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using testing::OneHead;
using List = OneHead::List;

TEST(CurDkv, LengthsAreSharesOfTheirPartition) {
  const auto kept = [](int64_t window, int64_t sinks) {
    OneHead layer({{1, 0}, {3, 0}, {0.5, 0}, {0, 1}});
    return layer.compress({{"name", "curdkv"}, {"sinks", sinks}, {"window", window}, {"tokens", 2}});
  };
  EXPECT_EQ(kept(0, 0), (List{0, 1}));
  EXPECT_EQ(kept(2, 0), (List{1, 3}));
  EXPECT_EQ(kept(2, 3), (List{0, 1}));
}

TEST(CurDkv, KeepsWhatKvpressKeeps) { testing::expect_golden_entries("curdkv", 6); }

}  // namespace
}  // namespace kvarena
