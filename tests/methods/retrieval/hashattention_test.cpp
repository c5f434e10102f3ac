// HashAttention: selections of its authors' code with drawn networks (tests/golden/retrieval_methods.py), and what a
// fit is worth.

#include "harness/method/fitter.h"
#include "harness/method/layer_view.h"
#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using testing::list_of;
using testing::random_floats;
using Request = testing::RetrievalRequest;

/// Networks of one layer whose maps have these sizes, drawn as the fixture's are.
FittedWeights drawn(const std::vector<int64_t>& sizes, uint64_t seed) {
  FittedWeights weights{.place = "test", .tensors = {}, .metadata = {}};
  for (const char* side : {"q", "k"}) {
    for (int64_t head = 0; head < 4; ++head) {
      for (size_t i = 0; i + 1 < sizes.size(); ++i) {
        const std::string name = "0.learning_to_hash_transformation_" + std::string(side) + "." + std::to_string(head) +
                                 "." + std::to_string(2 * i) + ".";
        const int64_t in = sizes[i], out = sizes[i + 1];
        weights.tensors[name + "weight"] = {.shape = {out, in},
                                            .values = random_floats(out * in, name + "weight", seed)};
        weights.tensors[name + "bias"] = {.shape = {out}, .values = random_floats(out, name + "bias", seed)};
      }
    }
  }
  return weights;
}

ModelFacts facts_with(FittedWeights weights) {
  ModelFacts facts;
  facts.fitted = [shared = std::make_shared<const FittedWeights>(std::move(weights))](const FittedRequest&) {
    return shared;
  };
  return facts;
}

TEST(HashAttention, SelectsWhatTheAuthorsDo) {
  const nlohmann::json cases = testing::golden("retrieval_methods/hashattention.json")["cases"];
  ASSERT_EQ(cases.size(), 3U);
  for (const nlohmann::json& one : cases) {
    const auto seed = one.at("seed").get<uint64_t>();
    const ModelFacts facts = facts_with(drawn(one.at("sizes").get<std::vector<int64_t>>(), seed));
    Request request(one.at("method"), one.at("n"), seed, {}, &facts);
    const auto q = random_floats(Request::kQuery, "q", seed);
    request.append(testing::mean_queries(q));
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 4; ++head) {
      EXPECT_EQ(list_of(view->selected(head)), one.at("selected")[head].get<std::vector<int32_t>>())
          << one.at("method") << ", query head " << head;
    }
  }
}

TEST(HashAttention, CountsSignaturesOfEveryQueryHead) {
  const ModelFacts facts = facts_with(drawn({16, 8, 40}, 1));
  const Request request({{"name", "hashattention"}, {"tokens", 20}, {"window", 4}}, 100, 1, {}, &facts);
  EXPECT_EQ(request.cache.layers[0].index->bytes(), 4 * 100 * 8);  // 40 bits in two words
}

/// Keys that are near one of eight directions each, and queries along one: signatures of the published width find the
/// keys around it.
TEST(HashAttention, AFitFindsTheBestEntries) {
  constexpr int64_t kEntries = 500, kQueries = 256, kTopics = 8;
  const auto along = [](int64_t count, int64_t heads, float length, std::string_view what, uint64_t seed) {
    std::vector<float> rows = random_floats(count * heads * 16, what, seed);
    const RandomStream topics(seed, "topics");
    for (int64_t i = 0; i < count; ++i) {
      const std::vector<float> own = random_floats(16, "topic", topics.below(kTopics, static_cast<uint64_t>(i)));
      for (int64_t c = 0; c < heads * 16; ++c) rows[i * heads * 16 + c] += length * own[c % 16];
    }
    return rows;
  };
  const nlohmann::json spec = {{"name", "hashattention"}, {"tokens", 64}, {"sinks", 0}, {"window", 1}, {"inner", 128}};
  const auto fitter = make_method(spec, "test")->fitter();
  std::vector<FittedTensors> records;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Request request({{"name", "full"}}, along(kEntries, 2, 3, "keys", seed));
    LayerObservations seen{.entries = kEntries, .window_queries = along(kQueries, 4, 3, "queries", seed + 50)};
    seen.window = kQueries;
    records.push_back(fitter->collect(LayerView(request.view(), &seen), RandomStream(seed, "collect")));
  }
  const FittedTensors layer = fitter->solve(records, RandomStream(1, "solve"));
  const ModelFacts facts = facts_with({.place = "test", .tensors = fitter->assemble({layer}), .metadata = {}});
  Request request(spec, along(kEntries, 2, 3, "keys", 99), {}, &facts);
  request.append(99);
  constexpr int64_t kAsked = 20;
  int64_t found = 0;  // of the 32 best entries of each head, among the 63 that are chosen: an eighth by chance
  for (uint64_t seed = 1; seed <= kAsked; ++seed) {
    const auto q = along(1, 4, 3, "asked", seed);
    const IndexedSegment* view = request.select(q);
    for (int64_t head = 0; head < 4; ++head) {
      for (const int32_t entry : testing::largest(testing::products(request, q, head), 0, kEntries, 32))
        found += std::ranges::count(view->selected(head), entry);
    }
  }
  EXPECT_GT(found, kAsked * 4 * 32 / 2);
}

}  // namespace
}  // namespace kvarena
