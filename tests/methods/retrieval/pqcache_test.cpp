// PQCache: exact where every key is a centroid, and what the authors' code selects from known centroids
// (tests/golden/retrieval_methods.py).

#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::largest;
using testing::products;
using testing::random_floats;
using Request = testing::RetrievalRequest;

TEST(PqCache, ACentroidForEveryKeyIsTheTrueTopK) {
  const json spec = {{"name", "pqcache"}, {"bits", 6}, {"sinks", 0}, {"recent_share", 0}, {"tokens", 12}};
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Request request(spec, 64, seed);  // 64 keys, 64 centroids of each part
    request.append(seed);
    const auto q = random_floats(Request::kQuery, "q", seed);
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 2; ++head) {
      std::vector<double> sums(64, 0.0);
      for (int64_t row = 2 * head; row < 2 * head + 2; ++row) {
        std::vector<double> own = products(request, q, row);
        own.resize(64);
        double total = 0;
        for (double& x : own) total += x = std::exp(x / 4);
        for (size_t i = 0; i < own.size(); ++i) sums[i] += own[i] / total;
      }
      std::vector<int32_t> expected = largest(sums, 0, 64, 11);
      expected.push_back(64);
      std::ranges::sort(expected);
      EXPECT_EQ(view->positions(head), expected) << "seed " << seed << ", kv head " << head;
    }
  }
}

TEST(PqCache, AShortPromptIsAttendedWhole) {
  Request request({{"name", "pqcache"}, {"sinks", 0}, {"tokens", 12}}, 60, 1);
  request.append(1);
  EXPECT_EQ(request.select(random_floats(Request::kQuery, "q")), nullptr);
}

TEST(PqCache, SelectsAsTheAuthorsCode) {
  const json cases = testing::golden("retrieval_methods/pqcache.json")["cases"];
  ASSERT_EQ(cases.size(), 3U);
  constexpr int64_t kDim = 16, kPart = 8;
  for (const json& one : cases) {
    const auto seed = one.at("seed").get<uint64_t>();
    const auto n = one.at("n").get<int64_t>();
    const int64_t clusters = int64_t{1} << one.at("method").at("bits").get<int64_t>();
    const auto centres = random_floats(clusters * Request::kRow, "directions", seed);
    std::vector<float> keys = random_floats(n * Request::kRow, "keys", seed);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t c = 0; c < Request::kRow; ++c) {
        const int64_t owner = (c % kDim < kPart ? i : i / clusters + i) % clusters;
        keys[i * Request::kRow + c] = centres[owner * Request::kRow + c] + 0.02F * keys[i * Request::kRow + c];
      }
    }
    Request request(one.at("method"), keys);
    const auto q = random_floats(Request::kQuery, "q", seed);
    request.append(testing::mean_queries(q));
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 2; ++head) {
      EXPECT_EQ(view->positions(head), one.at("selected")[head].get<std::vector<int32_t>>())
          << one.at("method") << ", kv head " << head;
    }
  }
}

}  // namespace
}  // namespace kvarena
