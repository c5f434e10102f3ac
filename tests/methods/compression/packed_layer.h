#pragma once
// One layer's cache under a codec, filled as a request would fill it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/cache/attend_plan.h"
#include "harness/cache/packed_segment.h"
#include "harness/method/registry.h"
#include "tests/support/random_entries.h"

namespace kvarena::testing {

inline constexpr LayerShape kCodecShape{.q_heads = 6, .kv_heads = 2, .head_dim = 64, .dtype = DType::bf16};

/// Facts of a model whose keys are rotated by 10000^(-2i/64), as most are.
inline const ModelFacts& turning_model() {
  static const ModelFacts facts = [] {
    ModelFacts made;
    for (int i = 0; i < 32; ++i) made.rotation.inverse.push_back(std::pow(10000.0, -i / 32.0));
    return made;
  }();
  return facts;
}

struct PackedLayer {
  explicit PackedLayer(const nlohmann::json& spec, const LayerShape& layer_shape = kCodecShape,
                       const ModelFacts* model_facts = nullptr)
      : shape(layer_shape), model(model_facts), method(make_method(spec, "test")), cache(1, layer_shape) {}

  [[nodiscard]] int64_t row() const { return shape.kv_heads * shape.head_dim; }
  void append(int64_t n) {
    const auto keys = random_floats(n * row(), "keys", static_cast<uint64_t>(cache.length + 1));
    const auto values = random_floats(n * row(), "values", static_cast<uint64_t>(cache.length + 1));
    append(keys, values, n);
  }
  void append(const std::vector<float>& keys, const std::vector<float>& values, int64_t n) {
    cache.layers[0].append(keys.data(), values.data(), n, row(), cache.length);
    cache.length += n;
  }
  void compress(const LayerObservations& seen = {}) {
    LayerContext context = view();
    method->compress_all({&context, 1}, {&seen, 1});
  }
  void prefill(int64_t n) {
    append(n);
    compress();
  }
  void decode(int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
      append(1);
      LayerContext context = view();
      method->after_append(context);
    }
  }
  [[nodiscard]] LayerContext view() {
    return {.layer = 0,
            .layers = 1,
            .cache = cache.layers[0],
            .activity = activity,
            .prompt_tokens = cache.length,
            .model = model};
  }
  [[nodiscard]] const PackedSegment* packed() const {
    return cache.layers[0].packed().empty() ? nullptr : cache.layers[0].packed().front();
  }
  [[nodiscard]] int64_t keys_in_16_bits() const { return cache.layers[0].tail().entries(0); }
  [[nodiscard]] int64_t values_in_16_bits() const {
    return keys_in_16_bits() + (packed() != nullptr ? packed()->unpacked_values() : 0);
  }
  /// Original positions of a head's entries, over all segments.
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const {
    std::vector<int32_t> all;
    for (const auto& segment : cache.layers[0].segments()) {
      const auto part = segment->positions(kv_head);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  /// The layer's entries, decoded, in a dense float cache.
  [[nodiscard]] KvCache decoded() const {
    LayerShape dense_shape = shape;
    dense_shape.dtype = DType::f32;
    KvCache dense(1, dense_shape);
    const int64_t n = cache.layers[0].entries(0);
    std::vector<float> keys(static_cast<size_t>(n * row()));
    std::vector<float> values(keys.size());
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      int64_t at = 0;
      for (const auto& segment : cache.layers[0].segments()) {
        const int64_t count = segment->entries(head);
        std::vector<float> k(static_cast<size_t>(count * shape.head_dim));
        std::vector<float> v(k.size());
        segment->read(head, k.data(), v.data());
        for (int64_t i = 0; i < count; ++i, ++at) {
          std::copy_n(&k[i * shape.head_dim], shape.head_dim, &keys[at * row() + head * shape.head_dim]);
          std::copy_n(&v[i * shape.head_dim], shape.head_dim, &values[at * row() + head * shape.head_dim]);
        }
      }
    }
    dense.layers[0].append(keys.data(), values.data(), n, row(), 0);
    return dense;
  }

  LayerShape shape;
  const ModelFacts* model;
  std::unique_ptr<Method> method;
  KvCache cache;
  Activity activity;
};

/// Finished attention of one query row per head, and its log-sum-exp.
struct Attended {
  std::vector<float> out, lse;
};
inline Attended attend_one_query(const LayerCache& cache, const std::vector<float>& q) {
  const LayerShape& shape = cache.shape();
  Attended result{std::vector<float>(q.size()), std::vector<float>(static_cast<size_t>(shape.q_heads))};
  std::vector<float> max(result.lse.size());
  std::vector<float> sum(result.lse.size());
  kernels::AttentionState state{.out = result.out.data(), .max = max.data(), .sum = sum.data()};
  kernels::init_attention(state, 1, shape.q_heads, shape.head_dim);
  attend(cache.plan({.q = q.data(), .q_len = 1, .q_stride = shape.q_heads * shape.head_dim}), state);
  kernels::finish_attention(state, 1, shape.q_heads, shape.head_dim, result.lse.data());
  return result;
}

}  // namespace kvarena::testing
