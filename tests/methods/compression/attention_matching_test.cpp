// Attention matching: the authors' compact caches (tests/golden/attention_matching.py), and what they are worth.

#include "harness/cache/biased_segment.h"
#include "tests/methods/retrieval/weighted_support.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::WeightedStep;

const LayerShape& shape() { return WeightedStep::kShape; }

LayerObservations queries_of(int64_t n, uint64_t seed) {
  LayerObservations seen{.entries = n, .window_queries = testing::random_floats(n * 64, "prompt queries", seed)};
  seen.window = n;
  for (float& x : seen.window_queries) x *= 3;
  return seen;
}

WeightedStep step_of(const json& spec, int64_t n, uint64_t seed) { return {spec, n, seed, queries_of(n, seed)}; }

const BiasedSegment& compact_of(const WeightedStep& step) {
  return dynamic_cast<const BiasedSegment&>(*step.layer().segments().front());
}

/// Mean distance to the attention to everything, over the step's numbers.
double error(const json& spec, int64_t n, uint64_t seed) {
  const WeightedStep full({{"name", "full"}}, n, seed), step = step_of(spec, n, seed);
  double total = 0;
  for (size_t i = 0; i < full.attended().size(); ++i) total += std::fabs(step.attended()[i] - full.attended()[i]);
  return total / static_cast<double>(full.attended().size());
}

TEST(AttentionMatching, CompactsAsTheAuthorsCode) {
  const json cases = testing::golden("attention_matching.json")["cases"];
  ASSERT_EQ(cases.size(), 4U);
  for (const json& one : cases) {
    SCOPED_TRACE(one["method"].dump());
    const WeightedStep step = step_of(one["method"], one["n"], one["seed"]);
    const BiasedSegment& compact = compact_of(step);
    for (int64_t head = 0; head < shape().kv_heads; ++head) {
      EXPECT_EQ(compact.positions(head), one["entries"][head].get<std::vector<int32_t>>());
      const auto biases = one["biases"][head].get<std::vector<float>>();
      ASSERT_EQ(compact.biases(head).size(), biases.size());
      for (size_t i = 0; i < biases.size(); ++i) EXPECT_NEAR(compact.biases(head)[i], biases[i], 2e-4) << i;
    }
    for (size_t i = 0; i < step.attended().size(); ++i)
      EXPECT_NEAR(step.attended()[i], one["out"][i].get<float>(), 3e-5) << "number " << i;
  }
}

TEST(AttentionMatching, IsMuchNearerToAllEntriesThanSomeOfThem) {
  for (const uint64_t seed : {1U, 2U, 3U}) {
    const double fitted = error({{"name", "attention_matching"}, {"tokens", 40}}, 200, seed);
    EXPECT_LT(fitted, 0.5 * error({{"name", "random"}, {"tokens", 40}}, 200, seed));
  }
}

TEST(AttentionMatching, CountsBiases) {
  const WeightedStep step = step_of({{"name", "attention_matching"}, {"tokens", 32}}, 100, 1);
  const BiasedSegment& compact = compact_of(step);
  const int64_t entry = 2 * shape().head_dim * 4 + 4 + 4;  // key and value, position, bias
  EXPECT_EQ(compact.bytes(), shape().kv_heads * 32 * entry);
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto copy = compact.clone(ledger);
  EXPECT_EQ(copy->bytes(), compact.bytes());
  EXPECT_EQ(ledger->current(), compact.bytes());
}

TEST(AttentionMatching, MeetsABudgetInBytesWithItsBiases) {
  constexpr int64_t kBytes = 10'000;
  const WeightedStep step = step_of({{"name", "attention_matching"}, {"bytes", kBytes}}, 100, 1);
  const int64_t entries = compact_of(step).entries(0), entry = 2 * shape().head_dim * 4 + 4 + 4;
  EXPECT_LE(entries * entry * shape().kv_heads, kBytes);
  EXPECT_GT((entries + 2) * entry * shape().kv_heads, kBytes);
}

TEST(AttentionMatching, FitsWhereKeysAreAlike) {
  LayerCache layer(shape(), std::make_shared<MemoryLedger>());
  constexpr int64_t kEntries = 64, kRow = 2 * 16;
  const std::vector<float> keys(kEntries * kRow, 0.5F), values = testing::random_floats(kEntries * kRow, "values", 1);
  layer.append(keys.data(), values.data(), kEntries, kRow, 0);
  Activity activity;
  LayerContext context{.layer = 0, .layers = 1, .cache = layer, .activity = activity, .prompt_tokens = kEntries};
  make_method({{"name", "attention_matching"}, {"tokens", 8}}, "test")->compress(context, queries_of(kEntries, 1));
  std::vector<float> fitted(8 * 16), all(kEntries * 16);
  layer.segments().front()->read(0, nullptr, fitted.data());
  for (int64_t c = 0; c < 16; ++c) {
    double mean = 0, own = 0;
    for (int64_t i = 0; i < kEntries; ++i) mean += values[i * kRow + c] / double{kEntries};
    for (int64_t i = 0; i < 8; ++i) own += fitted[i * 16 + c] / 8.0;
    EXPECT_NEAR(own, mean, 1e-4) << c;  // all entries have the same weight
  }
}

TEST(AttentionMatching, RefusesBoundsInTheWrongOrder) {
  const auto problems =
      check_method({{"name", "attention_matching"}, {"keep", 0.5}, {"lower", 1}, {"upper", 0}}, "test");
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems.front().find("test.lower"), std::string::npos);
}

}  // namespace
}  // namespace kvarena
