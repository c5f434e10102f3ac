// ChunkKV: by hand, and what kvpress keeps (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using testing::OneHead;
using testing::rows;
using List = OneHead::List;

TEST(ChunkKv, KeepsChunksWholeUnlessAskedNotTo) {
  const auto kept = [](bool partial) {
    OneHead layer(rows(50));
    return layer.compress({{"name", "chunkkv"}, {"scorer", {{"name", "knorm"}}}, {"partial", partial}, {"keep", 0.5}});
  };
  const List whole = kept(false);  // int(3 chunks / 2) = 1: of 20 entries, or the last one of 10
  EXPECT_EQ(whole.front() % 20, 0);
  EXPECT_EQ(whole.size(), whole.front() == 40 ? 10U : 20U);
  EXPECT_EQ(kept(true).size(), 25U);
}

TEST(ChunkKv, KeepsWhatKvpressKeeps) { testing::expect_golden_entries("chunkkv", 12); }

}  // namespace
}  // namespace kvarena
