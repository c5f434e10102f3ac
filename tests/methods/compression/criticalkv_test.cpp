// CriticalKV: by hand, and what kvpress keeps (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using testing::OneHead;
using testing::rows;
using List = OneHead::List;

TEST(CriticalKv, WeighsTheSecondHalfByTheOutput) {
  OneHead layer({});
  layer.append(rows(4), {{1}, {1}, {1}, {10}});
  layer.seen.entries = 4;
  layer.seen.prompt_attention = {0.4F, 0.3F, 0.2F, 0.1F};
  layer.seen.output_projection = [] { return OneHead::padded({1}); };  // hidden size 1: P = |v_0|
  EXPECT_EQ(layer.compress({{"name", "criticalkv"}, {"scorer", {{"name", "h2o"}, {"recent_share", 0}}}, {"tokens", 2}}),
            (List{0, 3}));
}

TEST(CriticalKv, KeepsWhatKvpressKeeps) { testing::expect_golden_entries("criticalkv", 6); }

}  // namespace
}  // namespace kvarena
