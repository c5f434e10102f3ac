// Sliding window: by hand, and what kvpress keeps without sinks (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using testing::OneHead;
using testing::rows;
using List = OneHead::List;

TEST(SlidingWindow, KeepsTheNewest) {
  OneHead window(rows(5));
  EXPECT_EQ(window.compress({{"name", "sliding_window"}, {"tokens", 3}}), (List{2, 3, 4}));
}

TEST(SlidingWindow, KeepsWhatKvpressKeeps) { testing::expect_golden_entries("sliding_window", 3); }

}  // namespace
}  // namespace kvarena
