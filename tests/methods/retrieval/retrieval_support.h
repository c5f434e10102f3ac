#pragma once
// One layer of random entries under a retrieval method, and exact attention over it in double.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/cache/indexed_segment.h"
#include "harness/method/registry.h"
#include "tests/support/golden.h"
#include "tests/support/random_entries.h"

namespace kvarena::testing {

struct RetrievalRequest {
  static constexpr LayerShape kShape{.q_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = DType::f32};
  static constexpr int64_t kRow = 2 * 16;    // numbers of a token's keys
  static constexpr int64_t kQuery = 4 * 16;  // numbers of a token's queries

  /// A prompt of n entries; their keys are also their values. `seen` may be what a prefill would have observed.
  RetrievalRequest(const nlohmann::json& spec, int64_t n, uint64_t seed, const LayerObservations& seen = {},
                   const ModelFacts* model = nullptr)
      : RetrievalRequest(spec, random_floats(n * kRow, "keys", seed), seen, model) {}
  /// A request whose prompt has these keys, [n, 2, 16].
  RetrievalRequest(const nlohmann::json& spec, std::vector<float> prompt_keys, const LayerObservations& seen = {},
                   const ModelFacts* model = nullptr)
      : method(make_method(spec, "test")),
        cache(1, kShape),
        keys(std::move(prompt_keys)),
        n(static_cast<int64_t>(keys.size()) / kRow),
        prompt(n),
        model(model) {
    cache.layers[0].append(keys.data(), keys.data(), n, kRow, 0);
    LayerContext context = view();
    method->compress(context, seen);
  }
  [[nodiscard]] LayerContext view() {
    return {.layer = 0,
            .layers = 1,
            .cache = cache.layers[0],
            .activity = activity,
            .prompt_tokens = prompt,
            .model = model};
  }
  /// Appends a token as decoding does.
  void append(uint64_t seed) { append(random_floats(kRow, "more", seed)); }
  void append(const std::vector<float>& more) {
    cache.layers[0].append(more.data(), more.data(), 1, kRow, n);
    keys.insert(keys.end(), more.begin(), more.end());
    ++n;
  }
  /// The view chosen for a query, or null when everything is attended.
  const IndexedSegment* select(const std::vector<float>& q) {
    cache.layers[0].view.reset();
    LayerContext context = view();
    method->select(context, queries(q));
    return dynamic_cast<const IndexedSegment*>(cache.layers[0].view.get());
  }
  /// Tells the method that the pass is over.
  void observe(const std::vector<float>& q) {
    cache.layers[0].view.reset();
    LayerContext context = view();
    method->observe(context, queries(q), nullptr);
  }
  [[nodiscard]] LayerQueries queries(const std::vector<float>& q) const {
    const auto count = static_cast<int64_t>(q.size()) / kQuery;
    return {.q = q.data(), .q_len = count, .q_stride = kQuery, .position = n - count};
  }

  [[nodiscard]] const float* key(int64_t kv_head, int64_t entry) const {
    return keys.data() + entry * kRow + kv_head * 16;
  }
  /// q.k in double.
  [[nodiscard]] double product(const std::vector<float>& q, int64_t q_head, int64_t entry) const {
    double total = 0;
    for (int64_t c = 0; c < 16; ++c) {
      total += static_cast<double>(q[q_head * 16 + c]) * static_cast<double>(key(q_head / 2, entry)[c]);
    }
    return total;
  }
  /// Softmax of a query head over the first `end` entries, in double.
  [[nodiscard]] std::vector<double> attention(const std::vector<float>& q, int64_t q_head, int64_t end) const {
    std::vector<double> row;
    for (int64_t i = 0; i < end; ++i) row.push_back(std::exp(product(q, q_head, i) / 4));
    double sum = 0;
    for (const double p : row) sum += p;
    for (double& p : row) p /= sum;
    return row;
  }

  std::unique_ptr<Method> method;
  KvCache cache;
  std::vector<float> keys;  // [n, 2, 16]
  int64_t n;
  int64_t prompt;
  const ModelFacts* model;
  Activity activity;
};

/// The k entries of [first, last) with the largest scores, ascending.
inline std::vector<int32_t> largest(const std::vector<double>& scores, int64_t first, int64_t last, int64_t k) {
  std::vector<int32_t> order;
  for (int64_t i = first; i < last; ++i) order.push_back(static_cast<int32_t>(i));
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  order.resize(static_cast<size_t>(std::min<int64_t>(k, last - first)));
  std::ranges::sort(order);
  return order;
}

inline std::vector<int32_t> list_of(std::span<const int32_t> selected) { return {selected.begin(), selected.end()}; }

/// Facts of a model whose keys are not rotated.
inline const ModelFacts& unrotated() {
  static const ModelFacts facts{.rotation = {.inverse = std::vector<double>(8, 0.0)}};
  return facts;
}

/// q.k of a query head with every entry, in double.
inline std::vector<double> products(const RetrievalRequest& request, const std::vector<float>& q, int64_t q_head) {
  std::vector<double> row;
  for (int64_t i = 0; i < request.n; ++i) row.push_back(request.product(q, q_head, i));
  return row;
}

/// The k best before the newest, and the newest.
inline std::vector<int32_t> best_and_newest(const RetrievalRequest& request, const std::vector<double>& scores,
                                            int64_t k) {
  std::vector<int32_t> list = largest(scores, 0, request.n - 1, k - 1);
  list.push_back(static_cast<int32_t>(request.n - 1));
  return list;
}

/// The mean of each group's queries, [kv_heads, head_dim].
inline std::vector<float> mean_queries(const std::vector<float>& q) {
  std::vector<float> mean;
  for (size_t i = 0; i < 32; ++i) mean.push_back((q[i / 16 * 32 + i % 16] + q[i / 16 * 32 + 16 + i % 16]) / 2);
  return mean;
}

/// Compares the selections of every case of retrieval_methods/METHOD.json, whose newest entry is the mean of the
/// queries.
inline void expect_golden_selections(const std::string& method_name) {
  const nlohmann::json cases = golden("retrieval_methods/" + method_name + ".json")["cases"];
  ASSERT_GE(cases.size(), 3U);
  for (const nlohmann::json& one : cases) {
    const auto seed = one.at("seed").get<uint64_t>();
    RetrievalRequest request(one.at("method"), one.at("n"), seed, {}, &unrotated());
    const auto q = random_floats(RetrievalRequest::kQuery, "q", seed);
    request.append(mean_queries(q));
    const IndexedSegment* view = request.select(q);
    ASSERT_NE(view, nullptr);
    for (int64_t head = 0; head < 4; ++head) {
      EXPECT_EQ(list_of(view->selected(head)), one.at("selected")[head].get<std::vector<int32_t>>())
          << one.at("method") << ", query head " << head;
    }
  }
}

}  // namespace kvarena::testing
