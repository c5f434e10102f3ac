// MiniCache: the worked example, KVCache-Factory's primitives (tests/golden/minicache.py), and what must be exact.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/cache/attend_plan.h"
#include "harness/cache/merged_segment.h"
#include "harness/core/files.h"
#include "harness/core/random.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/observe.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "tests/methods/compression/merged_entries.h"
#include "tests/support/random_entries.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::random_floats;

/// Two layers of `n` random entries and the pair that they become.
struct Merged {
  Merged(const LayerShape& layer, const MergeRule& rule, const std::vector<float>& below,
         const std::vector<float>& above)
      : shape(layer),
        ledger(std::make_shared<MemoryLedger>()),
        pair(std::make_shared<MergedPair>(layer, rule, ledger)) {
    add(below, above);
  }
  /// Rows [n, kv_heads, head_dim]; values are the keys' negatives.
  void add(const std::vector<float>& below, const std::vector<float>& above) {
    const int64_t stride = shape.kv_heads * shape.head_dim;
    const auto n = static_cast<int64_t>(below.size()) / stride;
    EntrySegment lower(shape, ledger);
    EntrySegment upper(shape, ledger);
    for (const auto& [rows, tail] : {std::pair{&below, &lower}, std::pair{&above, &upper}}) {
      std::vector<float> values = *rows;
      for (float& value : values) value = -value;
      tail->append(rows->data(), values.data(), n, stride, held);
    }
    held += n;
    pair->take(lower, upper);
  }
  [[nodiscard]] std::vector<float> keys(bool upper, int64_t head) const {
    std::vector<float> rows(static_cast<size_t>(held * shape.head_dim));
    MergedSegment(pair, upper).read(head, rows.data(), nullptr);
    return rows;
  }

  LayerShape shape;
  LedgerPtr ledger;
  std::shared_ptr<MergedPair> pair;
  int64_t held = 0;
};

LayerShape one_head(DType dtype) { return {.q_heads = 1, .kv_heads = 1, .head_dim = 16, .dtype = dtype}; }

std::vector<float> padded(std::vector<float> row) {
  row.resize(16, 0.0F);
  return row;
}

TEST(MiniCache, MeetsHalfWayOnTheSphere) {
  const Merged merged(one_head(DType::f32), {.interpolation = 0.6, .retained = 0}, padded({2, 0}), padded({0, 3}));
  const std::vector<float> lower = merged.keys(false, 0);
  const std::vector<float> upper = merged.keys(true, 0);
  EXPECT_NEAR(lower[0], 1.17557, 1e-5);
  EXPECT_NEAR(lower[1], 1.61803, 1e-5);
  EXPECT_NEAR(upper[0], 1.76336, 1e-5);
  EXPECT_NEAR(upper[1], 2.42705, 1e-5);
  std::vector<float> direction = {0, 0, 7};
  const float a[] = {2, 0};
  const float b[] = {0, 3};
  EXPECT_NEAR(interpolate_directions(a, b, 2, 0.6, direction.data()), std::acos(0.0), 1e-12);
  EXPECT_NEAR(direction[0], 0.58779, 1e-5);
  EXPECT_NEAR(direction[1], 0.80902, 1e-5);
  EXPECT_EQ(direction[2], 7) << "no channel of this row";
}

TEST(MiniCache, RestoresWhatKvCacheFactoryDoes) {
  const json golden = json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/minicache.json"));
  const int64_t heads = golden["heads"];
  const int64_t n = golden["tokens"];
  const int64_t d = golden["head_dim"];
  const LayerShape shape{.q_heads = heads, .kv_heads = heads, .head_dim = d, .dtype = DType::f32};
  const auto draw = [&](const char* purpose) {  // [heads, n, d]
    const RandomStream stream(3, purpose);
    std::vector<float> rows(static_cast<size_t>(heads * n * d));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(2 * stream.uniform(i) - 1);
    return rows;
  };
  const auto by_token = [&](const std::vector<float>& rows) {  // [n, heads, d]
    std::vector<float> turned(rows.size());
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < n; ++i) std::copy_n(&rows[(h * n + i) * d], d, &turned[(i * heads + h) * d]);
    }
    return turned;
  };
  const std::vector<float> lower = draw("lower");
  const std::vector<float> own = draw("upper");
  std::vector<float> upper = draw("mixture");
  for (size_t i = 0; i < upper.size(); ++i) {
    upper[i] = static_cast<float>(static_cast<double>(lower[i]) * upper[i] + 0.5 * own[i]);
  }
  for (const json& one : golden["cases"]) {
    SCOPED_TRACE(one.at("retained").dump());
    const Merged merged(shape, {.interpolation = one["interpolation"], .retained = one["retained"]}, by_token(lower),
                        by_token(upper));
    for (const bool above : {false, true}) {
      std::vector<float> all;
      for (int64_t h = 0; h < heads; ++h) {
        const std::vector<float> rows = merged.keys(above, h);
        all.insert(all.end(), rows.begin(), rows.end());
        const std::vector<float>& source = above ? upper : lower;
        for (const int64_t i : one["kept"][h].get<std::vector<int64_t>>()) {
          for (int64_t c = 0; c < d; ++c) EXPECT_EQ(rows[i * d + c], source[(h * n + i) * d + c]) << "retained " << i;
        }
      }
      const auto expected = one[above ? "upper" : "lower"].get<std::vector<double>>();
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(all[3 * i], expected[i], 1e-5) << i;
    }
  }
}

TEST(MiniCache, LayersThatAreEqualStayAsTheyAre) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    const LayerShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 32, .dtype = dtype};
    std::vector<float> rows = random_floats(40 * 2 * 32, "rows");
    std::fill_n(rows.begin(), 32, 0.0F);  // an entry of zeros
    const Merged merged(shape, {.retained = 0}, rows, rows);
    EntrySegment plain(shape, std::make_shared<MemoryLedger>());
    plain.append(rows.data(), rows.data(), 40, 64, 0);
    for (int64_t head = 0; head < 2; ++head) {
      std::vector<float> expected(40 * 32);
      plain.read(head, expected.data(), nullptr);
      for (const bool upper : {false, true}) {
        const std::vector<float> restored = merged.keys(upper, head);
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_NEAR(restored[i], expected[i], dtype == DType::f32 ? 1e-6 : 1e-7) << i;
        }
      }
    }
  }
}

/// A device appends what it has not seen yet: numbers of one entry too many would move all later ones.
TEST(MiniCache, StepsReadTheEntriesAskedForAlone) {
  const LayerShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 32, .dtype = DType::f32};
  const Merged merged(shape, {.retained = 0.5}, random_floats(40 * 64, "lower"), random_floats(40 * 64, "upper"));
  const MergedSegment segment(merged.pair, true);
  const AttentionPlan plan = plan_of(segment, {});
  for (const auto* steps : {&plan.items.front().steps.keys, &plan.items.front().steps.values}) {
    std::vector<kernels::RowScale> scales;
    std::get<ScaleEntries>(steps->at(0)).read(7, 3, scales);
    EXPECT_EQ(scales.size(), 3U * 2);
    SparseOverride::Numbers numbers;
    std::get<SparseOverride>(steps->at(1)).read(7, 3, numbers);
    EXPECT_EQ(numbers.counts.size(), 3U);
  }
}

TEST(MiniCache, GeneratedTokensAreRetainedByThePromptsAngle) {
  const auto at = [](double degrees) {
    const double radians = degrees / 180 * std::acos(-1.0);
    return padded({static_cast<float>(std::cos(radians)), static_cast<float>(std::sin(radians))});
  };
  std::vector<float> below;
  std::vector<float> above;
  for (int i = 0; i < 20; ++i) {
    const auto a = at(0);
    const auto b = at(2 * i);
    below.insert(below.end(), a.begin(), a.end());
    above.insert(above.end(), b.begin(), b.end());
  }
  Merged merged(one_head(DType::f32), {.retained = 0.1}, below, above);  // those at 36 and 38 degrees
  merged.add(at(0), at(35));
  merged.add(at(0), at(80));
  const std::vector<float> upper = merged.keys(true, 0);
  const auto angle = [&](int64_t i) { return std::atan2(upper[16 * i + 1], upper[16 * i]) / std::acos(-1.0) * 180; };
  EXPECT_NEAR(angle(17), 0.6 * 34, 1e-3);
  EXPECT_NEAR(angle(18), 36, 1e-4);
  EXPECT_NEAR(angle(19), 38, 1e-4);
  EXPECT_NEAR(angle(20), 0.6 * 35, 1e-3);
  EXPECT_NEAR(angle(21), 80, 1e-4);
}

TEST(MiniCache, StoresAPairOnceAlsoInACopy) {
  Transformer model = testing::tiny_model();
  const auto method = make_method({{"name", "minicache"}, {"start_layer", 1}, {"retained", 0.05}}, "test");
  const Prefill start = prefill(model, testing::tiny_prompt(320), {});
  Activity activity;
  const KvCache cache = compress_prompt(start, *method, activity);
  const LayerShape& shape = cache.layers[0].shape();
  EXPECT_EQ(cache.bytes(), cache.ledger->current(Tier::device));
  const int64_t entry = 2 * shape.head_dim * 2;  // key and value of a head in bf16
  const int64_t vectors = 320 * 2 * entry;       // of one layer
  const int64_t norms = 320 * 2 * 4 * 4;
  // 16 entries a head are retained, of keys and of values: one cell each, and their numbers.
  const int64_t retained = 2 * (16 * entry + 2 * 16 * 4);
  EXPECT_EQ(cache.bytes(), 2 * vectors + norms + retained);
  EXPECT_EQ(start.cache.bytes(), 3 * vectors);
  EXPECT_EQ(activity.entries_packed, 2 * 2 * 320);
  EXPECT_LE(cache.ledger->peak(Tier::device), start.cache.bytes() + start.cache.bytes() / 3 + norms + retained);
  const KvCache copy = cache.clone();
  EXPECT_EQ(copy.bytes(), cache.bytes());
  EXPECT_EQ(copy.ledger->current(Tier::device), cache.bytes());
}

TEST(MiniCache, AttendsToWhatItRestores) {
  Transformer model = testing::tiny_model();
  const auto method = make_method({{"name", "minicache"}, {"start_layer", 1}}, "test");
  const Prefill start = prefill(model, testing::tiny_prompt(600), {});
  Activity activity;
  KvCache cache = compress_prompt(start, *method, activity);
  MethodHooks hooks(*method, activity, 600, start.model.get());
  for (int32_t token = 0; token < 20; ++token) {
    const SequencePass pass{.tokens = {&token, 1}, .cache = &cache, .hooks = &hooks, .logits = LogitsRows::none};
    (void)model.forward({&pass, 1});
  }
  EXPECT_EQ(cache.layers[0].tail().entries(0), 620);
  const LayerShape& shape = cache.layers[0].shape();
  const int64_t d = shape.head_dim;
  const std::vector<float> q = random_floats(3 * shape.q_heads * d, "query");
  const LayerQueries queries{.q = q.data(), .q_len = 3, .q_stride = shape.q_heads * d, .position = 620};
  for (const size_t layer : {1, 2}) {
    ASSERT_EQ(cache.layers[layer].tail().entries(0), 0);
    const Segment& merged = *cache.layers[layer].segments().front();
    ASSERT_EQ(merged.entries(1), 620);
    EXPECT_EQ(merged.positions(0).back(), 619);
    std::vector<float> out(q.size());
    std::vector<float> state(2 * 3 * static_cast<size_t>(shape.q_heads));
    std::vector<float> lse(3 * static_cast<size_t>(shape.q_heads));
    kernels::AttentionState attention{.out = out.data(), .max = state.data(), .sum = state.data() + 3 * shape.q_heads};
    kernels::init_attention(attention, 3, shape.q_heads, d);
    attend(plan_of(merged, queries), attention);
    kernels::finish_attention(attention, 3, shape.q_heads, d, lse.data());
    std::vector<float> sums(static_cast<size_t>(shape.q_heads) * 620, 0.0F);
    add_probabilities(plan_of(merged, queries), lse.data(), sums.data(), 620);
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      std::vector<float> keys(620 * static_cast<size_t>(d));
      std::vector<float> values(keys.size());
      merged.read(h / shape.group(), keys.data(), values.data());
      std::vector<double> probability(620, 0.0);
      for (int64_t t = 0; t < 3; ++t) {
        const float* query = &q[(t * shape.q_heads + h) * d];
        std::vector<double> weights;
        double total = 0;
        for (int64_t i = 0; i < 620; ++i) {
          double dot = 0;
          for (int64_t c = 0; c < d; ++c) dot += static_cast<double>(query[c]) * keys[i * d + c];
          weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(d))));
          total += weights.back();
        }
        for (int64_t c = 0; c < d; ++c) {
          double expected = 0;
          for (int64_t i = 0; i < 620; ++i) expected += weights[i] / total * values[i * d + c];
          EXPECT_NEAR(out[(t * shape.q_heads + h) * d + c], expected, 1e-4);
        }
        for (int64_t i = 0; i < 620; ++i) probability[i] += weights[i] / total;
      }
      for (int64_t i = 0; i < 620; ++i) EXPECT_NEAR(sums[h * 620 + i], probability[i], 1e-4);
    }
  }
}

TEST(MiniCache, RetainingEverythingIsFullKvBitForBit) {
  Transformer model = testing::tiny_model();
  const auto same = make_method({{"name", "minicache"}, {"retained", 1.0}}, "test");
  const Method full;
  const Prefill start = prefill(model, testing::tiny_prompt(100), {});
  std::vector<std::vector<float>> logits;
  for (const Method* method : {&full, static_cast<const Method*>(same.get())}) {
    SessionOptions options{.stop = {.max_new_tokens = 10}};
    options.on_logits = [&](int64_t, std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); };
    const auto session = start_session(model, start, *method, options);
    Session* const sessions[] = {session.get()};
    run_together(model, sessions);
  }
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(logits[i], logits[i + 10]);
}

TEST(MiniCache, MergesAndPredictsAsRestated) { testing::expect_golden_merges("minicache"); }

}  // namespace
}  // namespace kvarena
