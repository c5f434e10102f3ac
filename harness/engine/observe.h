#pragma once
// What watches the attention of a pass: the observer of a prompt, and the adapter that lets a method act on decode
// passes.

#include <vector>

#include "harness/cache/layer_cache.h"
#include "harness/method/method.h"

namespace kvarena {

/// Fills LayerObservations while a prompt is processed, chunk by chunk.
class PromptObserver final : public AttentionHooks {
 public:
  PromptObserver(const Needs& needs, int64_t prompt_tokens, int64_t layers, int64_t hidden_size);

  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override;
  [[nodiscard]] bool wants_hidden() const override { return needs_.hidden; }
  [[nodiscard]] std::vector<LayerObservations> take() { return std::move(seen_); }

 private:
  void keep_window(LayerObservations& seen, const LayerShape& shape, const LayerQueries& queries, const float* lse);

  Needs needs_;
  int64_t prompt_tokens_;
  int64_t hidden_size_;
  std::vector<LayerObservations> seen_;
};

/// Lets a method select before, and observe and settle after each layer's attention.
class MethodHooks final : public AttentionHooks {
 public:
  MethodHooks(const Method& method, Activity& activity, int64_t layers, int64_t prompt_tokens)
      : method_(&method), activity_(&activity), layers_(layers), prompt_tokens_(prompt_tokens) {}

  void before_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries) override;
  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override;

 private:
  [[nodiscard]] LayerContext context(int64_t layer, LayerCache& cache) const;

  const Method* method_;
  Activity* activity_;
  int64_t layers_;
  int64_t prompt_tokens_;
};

}  // namespace kvarena
