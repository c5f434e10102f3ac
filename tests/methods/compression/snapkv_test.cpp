// SnapKV: pooled votes by hand, and what kvpress and the rule with other poolings keep
// (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using testing::logs;
using testing::OneHead;
using List = OneHead::List;

TEST(SnapKv, PoolsThePrefixWithPaddingThatCounts) {
  const std::vector<float> k = logs({0.15F, 0.3F, 0.2F, 0.1F, 0.125F, 0.125F});
  const auto kept = [&](const char* pool) {
    OneHead layer({{k[0]}, {k[1]}, {k[2]}, {k[3]}, {k[4]}, {k[5]}});
    layer.last_queries(2);
    return layer.compress({{"name", "snapkv"}, {"window", 2}, {"kernel", 3}, {"pool", pool}, {"tokens", 3}});
  };
  EXPECT_EQ(kept("avg"), (List{1, 4, 5}));
  EXPECT_EQ(kept("max"), (List{0, 4, 5}));  // a plateau of three: the lower index
}

TEST(SnapKv, EachChunkKeepsItsShareAndTheBestOfChunksTheRest) {
  const std::vector<float> k = logs({0.3F, 0.2F, 0.15F, 0.1F, 0.125F, 0.125F});
  const auto kept = [&](int64_t tokens) {
    OneHead layer({{k[0]}, {k[1]}, {k[2]}, {k[3]}, {k[4]}, {k[5]}});
    layer.last_queries(2);
    return layer.compress({{"name", "snapkv"}, {"window", 2}, {"kernel", 1}, {"chunk", 2}, {"tokens", tokens}});
  };
  EXPECT_EQ(kept(4), (List{0, 2, 4, 5}));
  EXPECT_EQ(kept(5), (List{0, 1, 2, 4, 5}));
}

TEST(SnapKv, KeepsWhatKvpressAndTheAuthorsRuleKeep) { testing::expect_golden_entries("snapkv", 21); }

}  // namespace
}  // namespace kvarena
