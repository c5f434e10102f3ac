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

  /// A prompt of n tokens in one pass, whose queries are multiplied by `sharpness`; `alike` tokens have the first
  /// one's.
  PrefillRequest(const nlohmann::json& spec, int64_t n, uint64_t seed, const LayerShape& shape = kShape,
                 float sharpness = 1, int64_t alike = 1)
      : method(make_method(spec, "test")),
        cache(1, shape),
        q(random_floats(n * kQuery, "q", seed)),
        keys(random_floats(n * kRow, "keys", seed)),
        values(random_floats(n * kRow, "values", seed)),
        n(n),
        sharpness(sharpness) {
    for (float& number : q) number *= sharpness;
    for (int64_t t = 0; t < n; ++t)
      if (t % alike != 0) std::copy_n(&q[t / alike * alike * kQuery], kQuery, &q[t * kQuery]);
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
  float sharpness;
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
        ASSERT_NEAR(out[row * PrefillRequest::kQuery + head * 16 + c], expected[c] / sum, 2e-6 * request.sharpness)
            << "head " << head << ", row " << row << ", channel " << c;
      }
    }
  }
  EXPECT_EQ(request.activity.entries_skipped, skipped);
}

/// The request of a case of sparse_prefill/METHOD.json.
inline PrefillRequest golden_request(const nlohmann::json& one) {
  return {one.at("method"),
          one.at("n"),
          one.at("seed"),
          PrefillRequest::kShape,
          one.at("sharpness").get<float>(),
          one.value("alike", int64_t{1})};
}

/// Compares every 37th row of the layer's output in each case of sparse_prefill/METHOD.json.
inline void expect_golden_rows(const std::string& method) {
  const nlohmann::json cases = golden("sparse_prefill/" + method + ".json")["cases"];
  ASSERT_GE(cases.size(), 2U);
  for (const nlohmann::json& one : cases) {
    const std::vector<float> out = golden_request(one).attended();
    const auto rows = one.at("rows").get<std::vector<std::vector<float>>>();
    for (size_t row = 0; row < rows.size(); ++row) {
      for (size_t i = 0; i < rows[row].size(); ++i)
        ASSERT_NEAR(out[row * 37 * PrefillRequest::kQuery + i], rows[row][i], 1e-5) << one.at("method") << " " << row;
    }
  }
}

/// Compares with masked attention in each case of sparse_prefill/METHOD.json, which holds rows of blocks of keys as
/// hexadecimal numbers, the first block in the highest bit.
inline void expect_golden_blocks(const std::string& method, int64_t block_of_all = 0) {
  const nlohmann::json cases = golden("sparse_prefill/" + method + ".json")["cases"];
  ASSERT_GE(cases.size(), 3U);
  for (const nlohmann::json& one : cases) {
    SCOPED_TRACE(one.at("method").dump());
    const int64_t block = block_of_all > 0 ? block_of_all : one.at("method").at("block").get<int64_t>();
    const PrefillRequest request = golden_request(one);
    const int64_t last = (request.n + block - 1) / block - 1;
    std::vector<std::vector<uint64_t>> masks;  // [heads][blocks of queries]
    for (const nlohmann::json& head : one.at("heads")) {
      masks.emplace_back();
      for (const nlohmann::json& row : head) masks.back().push_back(std::stoull(row.get<std::string>(), nullptr, 16));
    }
    expect_attends(request, [&](int64_t head, int64_t row, int64_t entry) {
      return (masks[head][row / block] >> (last - entry / block) & 1) != 0;
    });
  }
}

}  // namespace kvarena::testing
