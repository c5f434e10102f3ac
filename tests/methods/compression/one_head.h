#pragma once
// One layer with one kv head, for dropping methods on cases small enough to work out by hand.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/cache/attend_plan.h"
#include "harness/engine/session/observe.h"
#include "harness/method/registry.h"
#include "tests/support/random_entries.h"

namespace kvarena::testing {

/// One layer with one kv head, whose entries and observations a test sets.
struct OneHead {
  using List = std::vector<int32_t>;
  static constexpr int64_t kDim = 16;  // channels that a row does not name are 0

  explicit OneHead(const std::vector<std::vector<float>>& keys, int64_t q_heads = 1)
      : shape{.q_heads = q_heads, .kv_heads = 1, .head_dim = kDim, .dtype = DType::f32}, cache(1, shape) {
    seen.entries = static_cast<int64_t>(keys.size());
    append(keys);
  }
  void append(const std::vector<std::vector<float>>& keys, const std::vector<std::vector<float>>& values = {}) {
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::vector<float> key = padded(keys[i]);
      const std::vector<float> value = padded(values.empty() ? keys[i] : values[i]);
      cache.layers[0].append(key.data(), value.data(), 1, kDim, cache.length++);
    }
  }
  static std::vector<float> padded(std::vector<float> row) {
    row.resize(kDim, 0.0F);
    return row;
  }
  /// A query per row whose probability of entry i is exp(k[i][head]) / exp(lse): queries are 4 e_head.
  void last_queries(int64_t rows) {
    seen.window = rows;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t head = 0; head < shape.q_heads; ++head) {
        std::vector<float> q(kDim, 0.0F);
        q[head] = 4;  // scores are divided by sqrt(16)
        seen.window_queries.insert(seen.window_queries.end(), q.begin(), q.end());
        seen.window_lse.push_back(0);
      }
    }
  }
  LayerContext context() {
    return {.layer = 0, .layers = 1, .cache = cache.layers[0], .activity = activity, .prompt_tokens = seen.entries};
  }
  List compress(const nlohmann::json& spec) {
    method = make_method(spec, "test");
    if (!method->needs().statistics.empty()) seen.statistics = statistics(method->needs());
    LayerContext layer = context();
    method->compress_all({&layer, 1}, {&seen, 1});
    return held();
  }
  List settle() {
    LayerContext layer = context();
    method->after_append(layer);
    return held();
  }
  /// Gathers what the method needs from the last queries.
  std::vector<GatheredStatistic> statistics(const Needs& needs) {
    PromptObserver observer(needs, seen.entries, /*layers=*/1, /*hidden_size=*/0, {});
    const LayerQueries queries{.q = seen.window_queries.data(), .q_len = seen.window, .q_stride = shape.q_heads * kDim};
    std::vector<float> out(static_cast<size_t>(seen.window * shape.q_heads * kDim));
    std::vector<float> max(static_cast<size_t>(seen.window * shape.q_heads)), sum(max.size());
    kernels::AttentionState state{.out = out.data(), .max = max.data(), .sum = sum.data()};
    kernels::init_attention(state, seen.window, shape.q_heads, kDim);
    attend(cache.layers[0].plan(queries), state, observer.reader(0, cache.layers[0], queries));
    return observer.take()[0].statistics;
  }
  List held() { return cache.layers[0].tail().positions(0); }

  LayerShape shape;
  KvCache cache;
  LayerObservations seen;
  Activity activity;
  std::unique_ptr<Method> method;
};

inline std::vector<std::vector<float>> rows(int64_t n) {
  std::vector<std::vector<float>> list;
  for (int64_t i = 0; i < n; ++i) list.push_back(random_floats(OneHead::kDim, "row", static_cast<uint64_t>(i)));
  return list;
}

inline std::vector<float> logs(const std::vector<float>& values) {
  std::vector<float> list;
  for (const float value : values) list.push_back(std::log(value));
  return list;
}

}  // namespace kvarena::testing
