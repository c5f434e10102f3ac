// Compactor: attention by hand, and what kvpress keeps (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using testing::OneHead;
using List = OneHead::List;

TEST(Compactor, EarlierQueriesAttendToLaterKeys) {
  const auto kept = [](int64_t tokens, int64_t sinks) {
    OneHead layer({});
    layer.append({{0}, {0}, {0}, {1}}, {{1}, {1}, {1}, {1}});
    layer.seen.entries = 4;
    layer.last_queries(4);
    return layer.compress({{"name", "compactor"},
                           {"part", "attention"},
                           {"chunk", 4},
                           {"sinks", sinks},
                           {"recent", 0},
                           {"tokens", tokens}});
  };
  EXPECT_EQ(kept(1, 0), (List{2}));  // the mean of three neighbours
  EXPECT_EQ(kept(2, 0), (List{2, 3}));
  EXPECT_EQ(kept(2, 1), (List{0, 2}));
}

TEST(Compactor, KeepsWhatKvpressKeeps) { testing::expect_golden_entries("compactor", 9); }

}  // namespace
}  // namespace kvarena
