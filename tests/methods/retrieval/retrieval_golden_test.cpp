// Selections of the authors' code (tests/golden/retrieval_methods.py says how it was run).

#include <fstream>

#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::list_of;
using testing::random_floats;
using Request = testing::RetrievalRequest;
using Lists = std::vector<std::vector<int32_t>>;

const json& golden() {
  static const json all = json::parse(std::ifstream(KVARENA_SOURCE_DIR "/tests/golden/retrieval_methods.json"));
  return all;
}

/// Keys are not rotated in these cases.
const ModelFacts& unrotated() {
  static const ModelFacts facts{.rotation = {.inverse = std::vector<double>(8, 0.0)}};
  return facts;
}

/// The mean of each group's queries, [kv_heads, head_dim].
std::vector<float> mean_queries(const std::vector<float>& q) {
  std::vector<float> mean;
  for (size_t i = 0; i < 32; ++i) mean.push_back((q[i / 16 * 32 + i % 16] + q[i / 16 * 32 + 16 + i % 16]) / 2);
  return mean;
}

/// Cases whose newest entry is the mean of the queries.
void expect_selections(const char* method) {
  for (const json& one : golden().at(method)) {
    const auto seed = one.at("seed").get<uint64_t>();
    Request request(one.at("method"), one.at("n"), seed, {}, &unrotated());
    const auto q = random_floats(Request::kQuery, "q", seed);
    request.append(mean_queries(q));
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 4; ++head) {
      EXPECT_EQ(list_of(view->selected(head)), one.at("selected").get<Lists>()[head])
          << one.at("method") << ", query head " << head;
    }
  }
}

TEST(RetrievalGolden, QuestSelectsWhatItsAuthorsDo) { expect_selections("quest"); }

TEST(RetrievalGolden, LokiSelectsWhatItsAuthorsDo) { expect_selections("loki"); }

TEST(RetrievalGolden, DoubleSparsitySelectsWhatItsAuthorsDo) { expect_selections("double_sparsity"); }

TEST(RetrievalGolden, ClusterKvSelectsWhatItsAuthorsDoFromTheSameClusters) {
  for (const json& one : golden().at("clusterkv")) {
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
      std::vector<int32_t> expected = one.at("selected").get<Lists>()[head];
      expected.push_back(static_cast<int32_t>(n));  // generated entries are attended
      EXPECT_EQ(list_of(view->selected(head)), expected) << one.at("method") << ", query head " << head;
    }
  }
}

}  // namespace
}  // namespace kvarena
