// SimLayerKV: lazy layers by hand, and what kvpress keeps (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using testing::OneHead;
using List = OneHead::List;

TEST(SimLayerKv, ALayerThatLooksAtItsEndsIsCut) {
  const auto kept = [](size_t looked_at, double threshold) {
    std::vector<std::vector<float>> keys(20, {std::log(0.01F)});
    keys[looked_at] = {std::log(0.8F)};
    OneHead layer(keys);
    layer.last_queries(1);
    return layer.compress({{"name", "simlayerkv"}, {"threshold", threshold}, {"sinks", 2}, {"recent", 4}, {"last", 1}});
  };
  EXPECT_EQ(kept(0, 0.8), (List{0, 1, 17, 18, 19}));
  EXPECT_EQ(kept(0, 0.9).size(), 20U);
  EXPECT_EQ(kept(8, 0.8).size(), 20U);
}

TEST(SimLayerKv, AShortPromptStaysWhole) {
  OneHead layer(testing::rows(7));
  layer.last_queries(1);
  EXPECT_EQ(layer.compress({{"name", "simlayerkv"}, {"threshold", 0.01}, {"sinks", 2}, {"recent", 4}}).size(), 7U);
}

TEST(SimLayerKv, KeepsWhatKvpressKeeps) { testing::expect_golden_entries("simlayerkv", 3); }

}  // namespace
}  // namespace kvarena
