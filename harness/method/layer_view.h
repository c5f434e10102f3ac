#pragma once
// What a scorer or retriever sees of one layer, as tensors. All tensors are float32 on the CPU unless said.

#include <ATen/core/Tensor.h>

#include "harness/cache/layer_cache.h"
#include "harness/method/method.h"

namespace kvarena {

/// A window on one layer's entries: n entries of every kv head (all heads hold the same number).
/// Tensors are made when asked for; the view must not outlive the cache and the observations it was made from.
class LayerView {
 public:
  /// `seen` is null while decoding: then only what the cache itself holds can be asked for.
  LayerView(const LayerContext& layer, const LayerObservations* seen);

  [[nodiscard]] int64_t layer() const { return layer_->layer; }
  [[nodiscard]] int64_t layers() const { return layer_->layers; }
  [[nodiscard]] int64_t n() const { return n_; }
  [[nodiscard]] int64_t q_heads() const { return shape_.q_heads; }
  [[nodiscard]] int64_t kv_heads() const { return shape_.kv_heads; }
  [[nodiscard]] int64_t head_dim() const { return shape_.head_dim; }

  [[nodiscard]] at::Tensor keys() const;       // [kv_heads, n, head_dim], rotated
  [[nodiscard]] at::Tensor values() const;     // [kv_heads, n, head_dim]
  [[nodiscard]] at::Tensor positions() const;  // [kv_heads, n], int64

  /// Attention each entry received, summed over all prompt queries: [q_heads, n]. Needs::prompt_attention.
  [[nodiscard]] at::Tensor prompt_attention() const;
  /// Attention from the last w prompt queries, summed over them, causal inside the window: [q_heads, n].
  /// Needs::window >= w; a prompt shorter than w gives all its queries.
  [[nodiscard]] at::Tensor window_attention(int64_t w) const;
  /// Attention each entry received since it entered the cache, prompt and steps, summed over the group:
  /// [kv_heads, n]. Needs::prompt_attention and Needs::step_attention.
  [[nodiscard]] at::Tensor accumulated_attention() const;
  /// Attention inputs of the prompt: [n, hidden_size]. Needs::hidden.
  [[nodiscard]] at::Tensor hidden() const;

  /// [q_heads, n] -> [kv_heads, n], mean over each group of query heads.
  [[nodiscard]] at::Tensor group_mean(const at::Tensor& per_query_head) const;
  /// [q_heads, n] -> [kv_heads, n], sum over each group.
  [[nodiscard]] at::Tensor group_sum(const at::Tensor& per_query_head) const;

 private:
  const LayerContext* layer_;
  const LayerObservations* seen_;
  LayerShape shape_;
  int64_t n_;
};

}  // namespace kvarena
