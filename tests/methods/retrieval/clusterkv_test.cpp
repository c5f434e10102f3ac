// ClusterKV: clusters against their definition in double, and selections of its authors' code
// (tests/golden/retrieval_methods.py).

#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::largest;
using testing::list_of;
using testing::mean_queries;
using testing::products;
using testing::random_floats;
using Request = testing::RetrievalRequest;

TEST(ClusterKv, AClusterForEveryEntryIsTheTrueTopK) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Request request({{"name", "clusterkv"}, {"clusters", 500}, {"sinks", 4}, {"dense_layers", 0}, {"tokens", 24}}, 90,
                    seed);
    for (uint64_t i = 0; i < 7; ++i) request.append(seed * 10 + i);
    const auto q = random_floats(Request::kQuery, "q", seed);
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 4; ++head) {
      std::vector<int32_t> expected = {0, 1, 2, 3};
      const auto best = largest(products(request, q, head), 4, 90, 20);
      expected.insert(expected.end(), best.begin(), best.end());
      for (int32_t i = 90; i < 97; ++i) expected.push_back(i);
      EXPECT_EQ(list_of(view->selected(head)), expected) << "seed " << seed;
    }
  }
}

TEST(ClusterKv, WholeClustersInOrderAndTheLastOneCutToFit) {
  // Three directions with 3, 4 and 5 members; the query points most at the first, least at the last.
  std::vector<float> keys(12 * Request::kRow);
  const std::vector<int> owner = {2, 0, 1, 2, 1, 0, 2, 1, 2, 0, 1, 2};
  for (size_t i = 0; i < owner.size(); ++i) {
    for (size_t head = 0; head < 2; ++head) keys[i * Request::kRow + head * 16 + static_cast<size_t>(owner[i])] = 1;
  }
  Request request({{"name", "clusterkv"}, {"clusters", 3}, {"sinks", 0}, {"dense_layers", 0}, {"tokens", 8}}, keys);
  std::vector<float> q(Request::kQuery, 0.0F);
  for (int64_t head = 0; head < 4; ++head) {
    q[head * 16] = 3;
    q[head * 16 + 1] = 2;
    q[head * 16 + 2] = 1;
  }
  // 1 5 9 | 2 4 7 10 | 0, and the newest.
  EXPECT_EQ(request.select(q)->positions(1), (std::vector<int32_t>{0, 1, 2, 4, 5, 7, 9, 10, 11}));
}

TEST(ClusterKv, WindowsOfGeneratedEntriesAreClusteredWhenTheyAreCandidates) {
  Request request({{"name", "clusterkv"},
                   {"clusters", 10},
                   {"sinks", 2},
                   {"dense_layers", 0},
                   {"tokens", 12},
                   {"window", 8},
                   {"window_clusters", 8},
                   {"generated", "candidates"}},
                  60, 3);
  const auto q = random_floats(Request::kQuery, "q", 3);
  for (uint64_t i = 0; i < 20; ++i) {
    request.append(i);
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    const int64_t clustered = 60 + static_cast<int64_t>(i + 1) / 8 * 8;
    const auto list = list_of(view->selected(0));
    for (int64_t entry = clustered; entry < request.n; ++entry) {
      EXPECT_TRUE(std::ranges::binary_search(list, static_cast<int32_t>(entry))) << entry << " after " << i;
    }
    const auto among = std::ranges::count_if(list, [&](int32_t entry) { return entry < clustered; });
    EXPECT_LE(among, 12 + 1);  // sinks and members, and the newest where its window is just full
    EXPECT_GE(among, 12);
  }
}

TEST(ClusterKv, SeedsDecideAndRepeat) {
  const auto chosen = [](int64_t seed) {
    Request request(
        {{"name", "clusterkv"}, {"clusters", 12}, {"sinks", 0}, {"dense_layers", 0}, {"tokens", 30}, {"seed", seed}},
        200, 1);
    return request.select(random_floats(Request::kQuery, "q"))->positions(0);
  };
  EXPECT_EQ(chosen(5), chosen(5));
  EXPECT_NE(chosen(5), chosen(6));
}

TEST(ClusterKv, SelectsWhatItsAuthorsDoFromTheSameClusters) {
  const json cases = testing::golden("retrieval_methods/clusterkv.json")["cases"];
  ASSERT_EQ(cases.size(), 3U);
  for (const json& one : cases) {
    const auto seed = one.at("seed").get<uint64_t>();
    const auto n = one.at("n").get<int64_t>();
    const auto directions = one.at("directions").get<int64_t>();
    const auto centres = random_floats(directions * Request::kRow, "directions", seed);
    std::vector<float> keys = random_floats(n * Request::kRow, "keys", seed);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t c = 0; c < Request::kRow; ++c) {
        keys[i * Request::kRow + c] =
            centres[i * i / 3 % directions * Request::kRow + c] + 0.02F * keys[i * Request::kRow + c];
      }
    }
    Request request(one.at("method"), keys);
    const auto q = random_floats(Request::kQuery, "q", seed);
    request.append(mean_queries(q));
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 4; ++head) {
      std::vector<int32_t> expected = one.at("selected")[head];
      expected.push_back(static_cast<int32_t>(n));  // generated entries are attended
      EXPECT_EQ(list_of(view->selected(head)), expected) << one.at("method") << ", query head " << head;
    }
  }
}

}  // namespace
}  // namespace kvarena
