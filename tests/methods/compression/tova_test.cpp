// TOVA: both readings of its rule by hand, kvpress's and the authors' (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using testing::logs;
using testing::OneHead;
using List = OneHead::List;

TEST(Tova, MayLoseTheNewestUnlessAskedNotTo) {
  const std::vector<float> first = logs({0.5F, 0.4F, 0.1F});
  const std::vector<float> second = logs({0.5F, 0.3F, 0.2F});
  const auto kept = [&](bool newest) {
    OneHead layer({{first[0], second[0]}, {first[1], second[1]}, {first[2], second[2]}}, 2);
    layer.last_queries(1);
    return layer.compress({{"name", "tova"}, {"keep_newest", newest}, {"tokens", 2}});
  };
  EXPECT_EQ(kept(false), (List{0, 1}));  // the authors' rule
  EXPECT_EQ(kept(true), (List{0, 2}));   // kvpress
}

TEST(Tova, KeepsWhatKvpressAndTheAuthorsRuleKeep) { testing::expect_golden_entries("tova", 6); }

}  // namespace
}  // namespace kvarena
