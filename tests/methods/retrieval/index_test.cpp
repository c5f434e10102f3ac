// Retrievers that rank by an index, against their definitions in double.

#include <numeric>

#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::largest;
using testing::list_of;
using testing::random_floats;
using Request = testing::RetrievalRequest;

const ModelFacts& unrotated() {
  static const ModelFacts facts{.rotation = {.inverse = std::vector<double>(8, 0.0)}};
  return facts;
}

/// q.k of a query head with every entry, in double.
std::vector<double> products(const Request& request, const std::vector<float>& q, int64_t q_head) {
  std::vector<double> row;
  for (int64_t i = 0; i < request.n; ++i) row.push_back(request.product(q, q_head, i));
  return row;
}

/// The k best before the newest, and the newest.
std::vector<int32_t> best_and_newest(const Request& request, const std::vector<double>& scores, int64_t k) {
  std::vector<int32_t> list = largest(scores, 0, request.n - 1, k - 1);
  list.push_back(static_cast<int32_t>(request.n - 1));
  return list;
}

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

TEST(PillarAttention, HoldsWhatTheLastFullStepAttendedTo) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    constexpr int64_t kStride = 3;
    Request request({{"name", "pillar_attn"}, {"tokens", 20}, {"stride", kStride}}, 80, seed);
    std::vector<std::vector<float>> since;  // queries since the last full step, this one's included
    std::vector<std::vector<double>> scores;
    int64_t refreshed = 0;
    int64_t averaged = 0;
    for (uint64_t step = 0; step < 14; ++step) {
      request.append(seed * 50 + step);
      const auto q = random_floats(Request::kQuery, "q", seed * 50 + step);
      since.push_back(q);
      const IndexedSegment* view = request.select(q);
      if (step % (kStride + 1) == 0) {
        EXPECT_EQ(view, nullptr) << "step " << step;
        refreshed = request.n;
        averaged = static_cast<int64_t>(since.size());
        scores.assign(2, std::vector<double>(static_cast<size_t>(refreshed)));
        for (int64_t head = 0; head < 4; ++head) {
          std::vector<double> sums(static_cast<size_t>(refreshed));
          for (int64_t t = 0; t < averaged; ++t) {
            const auto p = request.attention(since[t], head, refreshed - (averaged - 1 - t));
            for (size_t i = 0; i < p.size(); ++i) sums[i] += p[i];
          }
          for (int64_t i = 0; i < refreshed; ++i) {
            scores[head / 2][i] += sums[i] / static_cast<double>(2 * std::min(averaged, refreshed - i));
          }
        }
        since.clear();
      } else {
        ASSERT_NE(view, nullptr) << "step " << step;
        for (int64_t head = 0; head < 2; ++head) {
          std::vector<int32_t> expected = largest(scores[head], 0, refreshed - averaged, 20 - averaged);
          for (int64_t i = refreshed - averaged; i < request.n; ++i) expected.push_back(static_cast<int32_t>(i));
          EXPECT_EQ(view->positions(head), expected) << "seed " << seed << ", step " << step;
        }
      }
      request.observe(q);
    }
  }
}

}  // namespace
}  // namespace kvarena
