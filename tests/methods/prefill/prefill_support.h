#pragma once
// One layer of a random prompt under a sparse prefill, and masked attention over it in double.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/cache/attend_plan.h"
#include "harness/method/registry.h"
#include "tests/support/golden.h"
#include "tests/support/random_entries.h"

namespace kvarena::testing {

struct PrefillRequest {
  static constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::f32};
  static constexpr int64_t kRow = 2 * 16;    // numbers of a token's keys
  static constexpr int64_t kQuery = 4 * 16;  // numbers of a token's queries

  /// A prompt of n tokens in one pass.
  PrefillRequest(const nlohmann::json& spec, int64_t n, uint64_t seed, const LayerShape& shape = kShape)
      : method(make_method(spec, "test")),
        cache(1, shape),
        q(random_floats(n * kQuery, "q", seed)),
        keys(random_floats(n * kRow, "keys", seed)),
        values(random_floats(n * kRow, "values", seed)),
        n(n) {
    cache.layers[0].append(keys.data(), values.data(), n, kRow, 0);
    LayerContext layer{.layer = 0, .layers = 1, .cache = cache.layers[0], .activity = activity, .prompt_tokens = n};
    method->select(layer, queries());
  }
  [[nodiscard]] LayerQueries queries() const { return {.q = q.data(), .q_len = n, .q_stride = kQuery, .position = 0}; }

  /// The layer's output [n, q_heads, head_dim], through the view that the method has set.
  [[nodiscard]] std::vector<float> attended() const {
    std::vector<float> out(q.size()), running(static_cast<size_t>(2 * n * kShape.q_heads));
    const kernels::AttentionState state{
        .out = out.data(), .max = running.data(), .sum = running.data() + n * kShape.q_heads};
    kernels::init_attention(state, n, kShape.q_heads, kShape.head_dim);
    attend(cache.layers[0].plan(queries()), state);
    kernels::finish_attention(state, n, kShape.q_heads, kShape.head_dim, nullptr);
    return out;
  }

  std::unique_ptr<Method> method;
  KvCache cache;
  std::vector<float> q, keys, values;
  int64_t n;
  Activity activity;
};

/// Compares with softmax over the entries up to each row's own that `sees(head, row, entry)`, and the count of the
/// pairs left out.
template <class Sees>
void expect_attends(const PrefillRequest& request, const Sees& sees) {
  const std::vector<float> out = request.attended();
  int64_t skipped = 0;
  for (int64_t head = 0; head < 4; ++head) {
    for (int64_t row = 0; row < request.n; ++row) {
      const float* const query = &request.q[row * PrefillRequest::kQuery + head * 16];
      std::vector<double> expected(16);
      double sum = 0;
      for (int64_t entry = 0; entry <= row; ++entry) {
        if (!sees(head, row, entry)) {
          ++skipped;
          continue;
        }
        const int64_t at = entry * PrefillRequest::kRow + head / 2 * 16;
        double score = 0;
        for (int64_t c = 0; c < 16; ++c) score += static_cast<double>(query[c]) * request.keys[at + c];
        const double weight = std::exp(score / 4);
        sum += weight;
        for (int64_t c = 0; c < 16; ++c) expected[c] += weight * request.values[at + c];
      }
      for (int64_t c = 0; c < 16; ++c) {
        ASSERT_NEAR(out[row * PrefillRequest::kQuery + head * 16 + c], expected[c] / sum, 2e-6)
            << "head " << head << ", row " << row << ", channel " << c;
      }
    }
  }
  EXPECT_EQ(request.activity.entries_skipped, skipped);
}

}  // namespace kvarena::testing
