// LessIsMore: the choice of the authors' code in a choosing layer (tests/golden/retrieval_methods.py), and which layers
// choose.

#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::random_floats;
using Request = testing::RetrievalRequest;

/// Layers of n random entries and their newest one, under a method.
struct Layers {
  Layers(const json& spec, int64_t count, int64_t n, uint64_t seed)
      : method(make_method(spec, "test")), cache(count, Request::kShape), q(random_floats(Request::kQuery, "q", seed)) {
    std::vector<float> keys = random_floats(n * Request::kRow, "keys", seed);
    const std::vector<float> newest = testing::mean_queries(q);
    keys.insert(keys.end(), newest.begin(), newest.end());
    for (LayerCache& layer : cache.layers) layer.append(keys.data(), keys.data(), n + 1, Request::kRow, 0);
    cache.length = n + 1;
  }
  /// The view that a step chooses in a layer; null when it attends to everything.
  const IndexedSegment* select(int64_t layer, const std::vector<float>& queries) {
    LayerContext context{.layer = layer,
                         .layers = std::ssize(cache.layers),
                         .cache = cache.layers[layer],
                         .activity = activity,
                         .prompt_tokens = cache.length - 1,
                         .request = &cache};
    method->select(context,
                   {.q = queries.data(), .q_len = 1, .q_stride = Request::kQuery, .position = cache.length - 1});
    return dynamic_cast<const IndexedSegment*>(cache.layers[layer].view.get());
  }

  std::unique_ptr<Method> method;
  KvCache cache;
  std::vector<float> q;
  Activity activity;
};

TEST(LessIsMore, AllHeadsAttendToTheChoiceOfTheAuthorsCode) {
  const json cases = testing::golden("retrieval_methods/less_is_more.json")["cases"];
  ASSERT_EQ(cases.size(), 4U);
  for (const json& one : cases) {
    SCOPED_TRACE(one.at("method").dump());
    Layers layers(one.at("method"), 4, one.at("n"), one.at("seed"));
    for (int64_t layer = 0; layer < 3; ++layer) EXPECT_EQ(layers.select(layer, layers.q), nullptr) << layer;
    const IndexedSegment* view = layers.select(3, layers.q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 2; ++head) {
      EXPECT_EQ(view->positions(head), one.at("selected").get<std::vector<int32_t>>());
    }
  }
}

TEST(LessIsMore, ALayerChoosesAgain) {
  Layers layers({{"name", "less_is_more"}, {"dense_layers", 1}, {"choose_again", 3}, {"tokens", 20}}, 5, 100, 1);
  const std::vector<float> other = random_floats(Request::kQuery, "other", 1);
  EXPECT_EQ(layers.select(1, layers.q), nullptr);
  const std::vector<int32_t> first = layers.select(2, other)->positions(0);
  EXPECT_EQ(layers.select(3, other), nullptr);
  const std::vector<int32_t> second = layers.select(4, layers.q)->positions(0);
  EXPECT_NE(first, second);
  EXPECT_EQ(first.size(), 20U);
  EXPECT_EQ(second.size(), 20U);
}

}  // namespace
}  // namespace kvarena
