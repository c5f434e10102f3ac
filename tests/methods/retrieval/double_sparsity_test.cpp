// Double Sparsity: rankings by labels against their definition in double, and selections of its authors' code
// (tests/golden/retrieval_methods.py).

#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using testing::best_and_newest;
using testing::list_of;
using testing::products;
using testing::random_floats;
using testing::unrotated;
using Request = testing::RetrievalRequest;

TEST(DoubleSparsity, AllChannelsInFullRankAsTrueScoresDo) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Request request({{"name", "double_sparsity"},
                     {"ranking", "prompt"},
                     {"group_factor", 1},
                     {"label_bits", 16},
                     {"dense_layers", 0},
                     {"tokens", 20}},
                    150, seed, {}, &unrotated());
    request.append(seed);
    const auto q = random_floats(Request::kQuery, "q", seed);
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 4; ++head) {
      EXPECT_EQ(list_of(view->selected(head)), best_and_newest(request, products(request, q, head), 20))
          << "seed " << seed;
    }
  }
}

TEST(DoubleSparsity, RanksChannelsBeforeRotation) {
  // Before rotation channel 0 is 1 for every key, channel 8 is 0; rotated by a quarter turn a position, half of the
  // keys show it in channel 8.
  ModelFacts facts;
  facts.rotation.inverse = std::vector<double>(8, 0.0);
  facts.rotation.inverse[0] = std::acos(-1.0) / 2;
  std::vector<float> keys(64 * Request::kRow);
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t head = 0; head < 2; ++head) {
      float* key = keys.data() + i * Request::kRow + head * 16;
      key[0] = static_cast<float>(std::cos(static_cast<double>(i) * facts.rotation.inverse[0]));
      key[8] = static_cast<float>(std::sin(static_cast<double>(i) * facts.rotation.inverse[0]));
      key[5] = 0.8F;  // above the mean of |cos|, below 1
    }
  }
  Request request({{"name", "double_sparsity"},
                   {"ranking", "prompt"},
                   {"group_factor", 16},
                   {"label_bits", 16},
                   {"dense_layers", 0},
                   {"tokens", 9}},
                  keys, {}, &facts);
  std::vector<float> q(Request::kQuery, 0.0F);
  for (int64_t head = 0; head < 4; ++head) q[head * 16] = 1;
  // The label is channel 0, so keys at multiples of four are best.
  EXPECT_EQ(request.select(q)->positions(0), (std::vector<int32_t>{0, 4, 8, 12, 16, 20, 24, 28, 63}));
}

TEST(DoubleSparsity, LabelsTakeTheirBits) {
  Request request(
      {{"name", "double_sparsity"}, {"ranking", "prompt"}, {"group_factor", 2}, {"dense_layers", 0}, {"tokens", 12}},
      160, 1, {}, &unrotated());
  // Eight channels of four bits and the two floats of their range.
  EXPECT_EQ(request.cache.layers[0].index->bytes(), 2 * 160 * (4 + 8));
  EXPECT_FALSE(check_method({{"name", "double_sparsity"}, {"tokens", 4}, {"label_bits", 3}}, "test").empty());
}

TEST(DoubleSparsity, WeightsThatNothingWouldReadAreRefused) {
  nlohmann::json unread = {{"name", "double_sparsity"}, {"tokens", 4}, {"weights", "w"}};
  EXPECT_TRUE(check_method(unread, "test").empty());
  unread["ranking"] = "prompt";
  EXPECT_FALSE(check_method(unread, "test").empty());
}

TEST(DoubleSparsity, SelectsWhatItsAuthorsDo) { testing::expect_golden_selections("double_sparsity"); }

}  // namespace
}  // namespace kvarena
