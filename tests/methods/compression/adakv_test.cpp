// Ada-KV: what kvpress and the authors' form keep (tests/golden/dropping_methods.py), and heads of unequal length.

#include <gtest/gtest.h>

#include "harness/cache/attend_plan.h"
#include "tests/methods/compression/kept_entries.h"
#include "tests/support/random_entries.h"

namespace kvarena {
namespace {

using testing::random_floats;

TEST(AdaKv, HeadsOfUnequalLengthAttendAsDenseOnesUnderAMask) {
  Transformer model = testing::tiny_model(1, {.weights = kernels::DType::f32, .cache = kernels::DType::f32});
  const auto method = make_method({{"name", "adakv"}, {"scorer", {{"name", "knorm"}}}, {"keep", 0.3}}, "test");
  const Prefill start = prefill(model, testing::tiny_prompt(70), method->needs());
  Activity activity;
  const KvCache cache = compress_prompt(start, *method, activity);
  const LayerShape& shape = cache.layers[0].shape();
  const std::vector<float> q = random_floats(shape.q_heads * shape.head_dim, "query");
  bool ragged = false;
  for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
    std::vector<float> out(q.size());
    std::vector<float> state(2 * static_cast<size_t>(shape.q_heads));
    kernels::AttentionState attention{.out = out.data(), .max = state.data(), .sum = state.data() + shape.q_heads};
    kernels::init_attention(attention, 1, shape.q_heads, shape.head_dim);
    const LayerQueries queries{.q = q.data(), .q_len = 1, .q_stride = static_cast<int64_t>(q.size()), .position = 70};
    attend(cache.layers[layer].plan(queries), attention);
    kernels::finish_attention(attention, 1, shape.q_heads, shape.head_dim, nullptr);

    const EntrySegment& full = start.cache.layers[layer].tail();
    ragged = ragged || cache.layers[layer].entries(0) != cache.layers[layer].entries(1);
    for (int64_t head = 0; head < shape.q_heads; ++head) {
      std::vector<float> keys(70 * static_cast<size_t>(shape.head_dim));
      std::vector<float> values(keys.size());
      full.read(head / shape.group(), keys.data(), values.data());
      std::vector<double> expected(static_cast<size_t>(shape.head_dim), 0.0);
      double sum = 0;
      for (const int32_t i : cache.layers[layer].tail().positions(head / shape.group())) {
        double dot = 0;
        for (int64_t c = 0; c < shape.head_dim; ++c) dot += q[head * shape.head_dim + c] * keys[i * shape.head_dim + c];
        const double weight = std::exp(dot / std::sqrt(static_cast<double>(shape.head_dim)));
        sum += weight;
        for (int64_t c = 0; c < shape.head_dim; ++c) expected[c] += weight * values[i * shape.head_dim + c];
      }
      for (int64_t c = 0; c < shape.head_dim; ++c) EXPECT_NEAR(out[head * shape.head_dim + c], expected[c] / sum, 1e-4);
    }
  }
  EXPECT_TRUE(ragged);
}

TEST(AdaKv, KeepsWhatKvpressAndTheAuthorsRuleKeep) { testing::expect_golden_entries("adakv", 6); }

}  // namespace
}  // namespace kvarena
