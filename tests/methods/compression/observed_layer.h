#pragma once
// A layer of keys, what a prefill would have observed of it, and fitted weights, set by hand.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/method/registry.h"
#include "harness/method/scorer.h"

namespace kvarena::testing {

inline constexpr int64_t kObservedDim = 16;  // the smallest head; channels that a case does not name are 0

/// Rows of `width` channels, filled up to kObservedDim.
inline std::vector<float> padded(const std::vector<float>& rows, int64_t width) {
  std::vector<float> wide(rows.size() / static_cast<size_t>(width) * kObservedDim, 0.0F);
  for (size_t i = 0; i < rows.size(); ++i)
    wide[i / static_cast<size_t>(width) * kObservedDim + i % static_cast<size_t>(width)] = rows[i];
  return wide;
}

/// A layer of `entries` keys [entries][kv_heads][2] whose values are the keys, and what surrounds it.
struct ObservedLayer {
  ObservedLayer(const std::vector<float>& keys, int64_t kv_heads, int64_t entries,
                std::vector<FittedTensors> weights = {})
      : cache(1, {.q_heads = kv_heads, .kv_heads = kv_heads, .head_dim = kObservedDim, .dtype = DType::f32}) {
    const std::vector<float> rows = padded(keys, 2);
    cache.layers[0].append(rows.data(), rows.data(), entries, kObservedDim * kv_heads, 0);
    context.prompt_tokens = entries;
    seen.entries = entries;
    facts.hidden_size = 2;
    facts.rotation.inverse.assign(kObservedDim / 2, 0.0);  // no rotation
    if (!weights.empty()) {
      auto fitted = std::make_shared<FittedWeights>();
      fitted->tensors = weights.front();
      facts.fitted = [fitted](const FittedRequest&) { return fitted; };
    }
  }
  [[nodiscard]] std::vector<int32_t> kept(const nlohmann::json& spec, int64_t head = 0) {
    make_method(spec, "test")->compress_all({&context, 1}, {&seen, 1});
    return cache.layers[0].tail().positions(head);
  }
  [[nodiscard]] at::Tensor scores(const nlohmann::json& spec) {
    return Nested<Scorer>(spec.dump())->score(LayerView(context, &seen));
  }

  KvCache cache;
  Activity activity;
  ModelFacts facts;
  LayerObservations seen;
  LayerContext context{
      .layer = 0, .layers = 1, .cache = cache.layers[0], .activity = activity, .prompt_tokens = 0, .model = &facts};
};

}  // namespace kvarena::testing
