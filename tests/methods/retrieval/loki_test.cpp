// Loki: rankings by components against their definition in double, and selections of its authors' code
// (tests/golden/retrieval_methods.py).

#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::best_and_newest;
using testing::list_of;
using testing::products;
using testing::random_floats;
using Request = testing::RetrievalRequest;

TEST(Loki, AllComponentsRankAsTrueScoresDo) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Request request({{"name", "loki"}, {"basis", "prompt"}, {"rank_share", 1.0}, {"tokens", 20}}, 150, seed);
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

TEST(Loki, FewComponentsSufficeForKeysThatLieInFewDimensions) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    // Keys in the span of channels 2, 3 and 11 and of two more directions of them.
    std::vector<float> keys = random_floats(140 * Request::kRow, "keys", seed);
    for (size_t i = 0; i < keys.size(); ++i) {
      const size_t c = i % 16;
      if (c != 2 && c != 3 && c != 11) keys[i] = 0;
    }
    const json spec = {{"name", "loki"}, {"basis", "prompt"}, {"rank_share", 3.0 / 16}, {"tokens", 12}};
    Request request(spec, keys);
    const auto q = random_floats(Request::kQuery, "q", seed);
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 4; ++head) {
      EXPECT_EQ(list_of(view->selected(head)), best_and_newest(request, products(request, q, head), 12));
    }
    // Explaining nearly everything takes two components beside the first: the authors count those below the share.
    Request explained({{"name", "loki"}, {"basis", "prompt"}, {"variance", 0.9999}, {"tokens", 12}}, keys);
    EXPECT_EQ(explained.cache.layers[0].index->bytes(), 2 * 144 * 2 * 4);
  }
}

TEST(Loki, TheIndexTakesItsRankOfEveryEntry) {
  Request request({{"name", "loki"}, {"basis", "prompt"}, {"tokens", 12}}, 160, 1);
  EXPECT_EQ(request.cache.layers[0].index->bytes(), 2 * 160 * 4 * 4);  // kv heads, entries, 16 / 4 channels of f32
}

TEST(Loki, SelectsWhatItsAuthorsDo) { testing::expect_golden_selections("loki"); }

}  // namespace
}  // namespace kvarena
