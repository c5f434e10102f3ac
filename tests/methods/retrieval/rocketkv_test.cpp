// RocketKV: what the authors' code keeps of a prompt and then selects (tests/golden/retrieval_methods.py), and where it
// has nothing to do.

#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::list_of;
using testing::random_floats;
using Request = testing::RetrievalRequest;

/// The last queries of a prompt with these keys [n, 2, 16], and the logarithms of their softmax denominators.
LayerObservations observed(const std::vector<float>& keys, int64_t window, uint64_t seed) {
  const int64_t n = std::ssize(keys) / Request::kRow;
  LayerObservations seen{
      .entries = n, .window_queries = random_floats(window * Request::kQuery, "window", seed), .window = window};
  for (int64_t row = 0; row < window * 4; ++row) {
    const float* const q = &seen.window_queries[static_cast<size_t>(row * 16)];
    double sum = 0;
    for (int64_t i = 0; i <= n - window + row / 4; ++i) {
      double product = 0;
      for (int64_t c = 0; c < 16; ++c)
        product += static_cast<double>(q[c]) * keys[i * Request::kRow + row % 4 / 2 * 16 + c];
      sum += std::exp(product / 4);
    }
    seen.window_lse.push_back(static_cast<float>(std::log(sum)));
  }
  return seen;
}

TEST(RocketKv, KeepsAndSelectsAsTheAuthorsCode) {
  const json cases = testing::golden("retrieval_methods/rocketkv.json")["cases"];
  ASSERT_EQ(cases.size(), 4U);
  for (const json& one : cases) {
    SCOPED_TRACE(one.at("method").dump());
    const auto seed = one.at("seed").get<uint64_t>();
    const auto keys = random_floats(one.at("n").get<int64_t>() * Request::kRow, "keys", seed);
    Request request(one.at("method"), keys, observed(keys, one.at("window"), seed));
    for (int64_t head = 0; head < 2; ++head) {
      EXPECT_EQ(request.cache.layers[0].tail().positions(head), one.at("kept")[head].get<std::vector<int32_t>>());
    }
    const auto q = random_floats(Request::kQuery, "q", seed);
    request.append(testing::mean_queries(q));
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 2; ++head) {
      EXPECT_EQ(view->positions(head), one.at("selected")[head].get<std::vector<int32_t>>()) << "kv head " << head;
    }
  }
}

TEST(RocketKv, HoldsBoundsOfChunksInTheLayersType) {
  const auto keys = random_floats(400 * Request::kRow, "keys", 3);
  Request request({{"name", "rocketkv"}, {"tokens", 16}}, keys, observed(keys, 32, 3));
  const LayerCache& layer = request.cache.layers[0];
  const int64_t chunks = (layer.entries(0) + 2) / 3;  // sqrt((400 / 25^0.479) / 16), rounded up
  EXPECT_EQ(layer.entries(0), 85);
  EXPECT_EQ(layer.index->bytes(), chunks * 2 * Request::kRow * 4);
}

TEST(RocketKv, ABudgetOfThePromptLeavesItAsItIs) {
  const auto keys = random_floats(100 * Request::kRow, "keys", 3);
  Request request({{"name", "rocketkv"}, {"tokens", 100}}, keys, observed(keys, 32, 3));
  request.append(1);
  EXPECT_EQ(request.select(random_floats(Request::kQuery, "q")), nullptr);
  EXPECT_EQ(request.cache.layers[0].entries(0), 101);
}

}  // namespace
}  // namespace kvarena
