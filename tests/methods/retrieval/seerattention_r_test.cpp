// SeerAttention-R: selections of the authors' gate with drawn weights (tests/golden/retrieval_methods.py), and what a
// fit is worth.

#include <numeric>

#include "harness/method/fitter.h"
#include "harness/method/layer_view.h"
#include "tests/methods/retrieval/retrieval_support.h"

namespace kvarena {
namespace {

using testing::list_of;
using testing::random_floats;
using Request = testing::RetrievalRequest;

/// Facts of a model of one layer with these weights, whose keys are rotated.
ModelFacts facts_with(FittedTensors tensors) {
  ModelFacts facts;
  for (int64_t i = 0; i < 8; ++i) facts.rotation.inverse.push_back(std::pow(10000.0, -static_cast<double>(i) / 8));
  const auto shared = std::make_shared<const FittedWeights>(
      FittedWeights{.place = "test", .tensors = std::move(tensors), .metadata = {}});
  facts.fitted = [shared](const FittedRequest&) { return shared; };
  return facts;
}

/// A gate drawn as the fixture's is.
FittedTensors drawn(bool norms, uint64_t seed) {
  FittedTensors tensors;
  const auto draw = [&](const std::string& what, const std::vector<int64_t>& shape) {
    const std::string name = "model.layers.0.self_attn.attn_gate.attngate_" + what + ".weight";
    const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    tensors[name] = {.shape = shape, .values = random_floats(count, name, seed)};
  };
  draw("linear_q", {2, 2, 16, 16});
  draw("linear_k", {2, 48, 16});
  if (norms) draw("qnorm", {16});
  if (norms) draw("knorm", {16});
  return tensors;
}

TEST(SeerAttentionR, SelectsWhatTheAuthorsDo) {
  const nlohmann::json cases = testing::golden("retrieval_methods/seerattention_r.json")["cases"];
  ASSERT_EQ(cases.size(), 4U);
  for (const nlohmann::json& one : cases) {
    const auto seed = one.at("seed").get<uint64_t>();
    const ModelFacts facts = facts_with(drawn(one.at("norms"), seed));
    Request request(one.at("method"), one.at("n"), seed, {}, &facts);
    for (uint64_t step = 0; step < one.at("steps").get<uint64_t>(); ++step) request.append(seed + step);
    const IndexedSegment* view = request.select(random_floats(Request::kQuery, "q", seed));
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 4; ++head) {
      EXPECT_EQ(list_of(view->selected(head)), one.at("selected")[head].get<std::vector<int32_t>>())
          << one.at("method") << ", query head " << head;
    }
  }
}

TEST(SeerAttentionR, CountsARowABlock) {
  const ModelFacts facts = facts_with(drawn(true, 1));
  const Request request({{"name", "seerattention_r"}, {"tokens", 32}, {"block", 16}}, 100, 1, {}, &facts);
  EXPECT_EQ(request.cache.layers[0].index->bytes(), 2 * 6 * 16 * 4);
}

/// Blocks that share a direction, which queries of the second half look for: a fitted gate finds them.
TEST(SeerAttentionR, AFitFindsTheBlocksThatAreAttendedTo) {
  constexpr int64_t kEntries = 512, kBlock = 16, kTopics = 8;
  const auto topic = [](int64_t number) { return random_floats(16, "topic", static_cast<uint64_t>(number)); };
  ModelFacts facts = facts_with({});
  facts.rotation.inverse.assign(8, 0.0);
  const auto keys_of = [&](uint64_t seed) {
    std::vector<float> keys = random_floats(kEntries * Request::kRow, "keys", seed);
    for (int64_t i = 0; i < kEntries; ++i) {
      const std::vector<float> own = topic((i / kBlock * 5 + static_cast<int64_t>(seed)) % kTopics);
      for (int64_t c = 0; c < Request::kRow; ++c) keys[i * Request::kRow + c] += 2 * own[c % 16];
    }
    return keys;
  };
  const auto query_of = [&](int64_t number) {
    std::vector<float> q;
    for (int64_t head = 0; head < 4; ++head) {
      for (const float x : topic(number)) q.push_back(4 * x);
    }
    return q;
  };
  const nlohmann::json spec = {{"name", "seerattention_r"}, {"tokens", 6 * kBlock}, {"block", kBlock}};
  const auto fitter = make_method(spec, "test")->fitter();
  std::vector<FittedTensors> records;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Request request({{"name", "full"}}, keys_of(seed), {}, &facts);
    LayerObservations seen{.entries = kEntries};
    seen.window = kEntries;
    for (int64_t i = 0; i < kEntries; ++i) {
      const std::vector<float> q = query_of((i * 3 + static_cast<int64_t>(seed)) % kTopics);
      seen.window_queries.insert(seen.window_queries.end(), q.begin(), q.end());
    }
    records.push_back(fitter->collect(LayerView(request.view(), &seen), RandomStream(seed, "collect")));
  }
  ModelFacts fitted = facts_with(fitter->assemble({fitter->solve(records, RandomStream(1, "solve"))}));
  fitted.rotation = facts.rotation;
  Request request(spec, keys_of(99), {}, &fitted);
  request.append(99);
  int64_t found = 0;
  for (int64_t asked = 0; asked < kTopics; ++asked) {
    const IndexedSegment* view = request.select(query_of(asked));
    for (int64_t block = 0; block < kEntries / kBlock; ++block) {
      if ((block * 5 + 99) % kTopics == asked) found += std::ranges::count(view->selected(0), block * kBlock);
    }
  }
  EXPECT_GT(found, kTopics * 4 / 2);  // each is the topic of four blocks of 32; six are chosen
}

}  // namespace
}  // namespace kvarena
