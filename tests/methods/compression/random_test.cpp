// Random: draws of harness/core/random.h, restated, and seeds.

#include "harness/core/random.h"

#include <gtest/gtest.h>

#include "harness/engine/session/compressed_cache.h"
#include "tests/methods/compression/one_head.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using testing::OneHead;
using testing::rows;
using List = OneHead::List;

TEST(Random, ChanceHasASeed) {
  const auto draw = [](int64_t seed) {
    OneHead layer(rows(60));
    return layer.compress({{"name", "random"}, {"seed", seed}, {"keep", 0.5}});
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
  EXPECT_EQ(draw(3).size(), 30U);
}

TEST(Random, KeepsTheLargestDrawsOfEachHead) {
  // The restatement: the stream of a layer and head, draw i for position i, the best half.
  Transformer model = testing::tiny_model();
  const auto method = make_method({{"name", "random"}, {"seed", 9}, {"keep", 0.5}}, "test");
  const Prefill start = prefill(model, testing::tiny_prompt(60), method->needs());
  Activity activity;
  const KvCache cache = compress_prompt(start, *method, activity);
  for (int64_t layer = 0; layer < 3; ++layer) {
    for (int64_t head = 0; head < 2; ++head) {
      const RandomStream stream(9, "random/" + std::to_string(layer) + "/" + std::to_string(head));
      std::vector<std::pair<double, int32_t>> order;
      for (int32_t i = 0; i < 60; ++i) order.emplace_back(-stream.uniform(static_cast<uint64_t>(i)), i);
      std::ranges::sort(order);
      List expected;
      for (size_t i = 0; i < 30; ++i) expected.push_back(order[i].second);
      std::ranges::sort(expected);
      EXPECT_EQ(cache.layers[layer].tail().positions(head), expected) << "layer " << layer << ", head " << head;
    }
  }
}

}  // namespace
}  // namespace kvarena
