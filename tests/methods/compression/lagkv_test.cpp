// LagKV: by hand, what kvpress keeps, and the authors' form restated in float64 (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::OneHead;
using testing::rows;
using List = OneHead::List;

TEST(LagKv, JudgesAPartitionByTheNext) {
  OneHead layer({{0, 0}, {2, 0}, {0, 0}, {1, 1}});
  EXPECT_EQ(layer.compress({{"name", "lagkv"}, {"form", "authors"}, {"sinks", 0}, {"lag", 2}, {"keep", 0.5}}),
            (List{1, 2, 3}));
}

TEST(LagKv, InTheAuthorsFormKeepsWholePartitionsAtTheEndAndGoesOnWhileDecoding) {
  const int64_t sinks = 16;
  const int64_t lag = 64;
  OneHead layer(rows(sinks + 3 * lag));
  const json spec = {{"name", "lagkv"}, {"form", "authors"}, {"sinks", sinks}, {"lag", lag}, {"keep", 0.5}};
  EXPECT_EQ(static_cast<int64_t>(layer.compress(spec).size()), sinks + lag / 2 + lag / 2 + lag);
  for (int64_t i = 1; i < lag; ++i) {
    layer.append(rows(1));
    EXPECT_EQ(static_cast<int64_t>(layer.settle().size()), sinks + 2 * lag + i);
  }
  layer.append(rows(1));  // the partition after the last one is complete
  EXPECT_EQ(static_cast<int64_t>(layer.settle().size()), sinks + 3 * lag / 2 + lag);
}

TEST(LagKv, KeepsWhatKvpressAndTheAuthorsRuleKeep) { testing::expect_golden_entries("lagkv", 15); }

}  // namespace
}  // namespace kvarena
