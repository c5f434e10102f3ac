#pragma once
// Projections before and after attention on a device, for each kind; harness/model/attention_projections.h there.

#include <cstdint>

#include "harness/device/device_weights.h"
#include "harness/device/workspace.h"
#include "harness/model/qkv_rows.h"

namespace kvarena::device {

/// Rows of a pass, and the rotation of each: cos, sin [rows, rotary_dim / 2].
struct PassRows {
  int64_t rows = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  kernels::CudaStream stream = nullptr;
};

/// How queries, keys and values stand in memory, in floats.
struct AttentionLayout {
  int64_t q_stride = 0, kv_stride = 0;
  bool together = false;  // keys and values stand in the rows of queries, `keys` behind these
  int64_t keys = 0;
  int64_t values_behind_keys = 0;  // 0: they are the same numbers
};

class DeviceAttention {
 public:
  explicit DeviceAttention(const ModelConfig& config);

  /// Factor on a query's products with keys.
  [[nodiscard]] float scale() const;
  /// Layout of the rows that input() gives.
  [[nodiscard]] AttentionLayout layout() const;
  /// Memory for a pass of `rows` rows; `moves` counts how often some address has changed.
  void make_room(int64_t rows, int64_t& moves);

  /// From `in` [rows, hidden_size].
  [[nodiscard]] QkvRows input(const DeviceHeadAttention& weights, const float* in, const PassRows& pass);
  /// Queries are taken to the latent, so that one latent serves all heads.
  [[nodiscard]] QkvRows input(const DeviceLatentAttention& weights, const float* in, const PassRows& pass);

  /// x [rows, hidden_size] += the output of attended [rows, q_heads, head_dim of the cache].
  void output(const DeviceHeadAttention& weights, const float* attended, float* x, const PassRows& pass);
  void output(const DeviceLatentAttention& weights, const float* attended, float* x, const PassRows& pass);

 private:
  [[nodiscard]] QkvRows rows_at(const float* q, const float* keys) const;
  [[nodiscard]] const float* latent_keys(const DeviceLatentAttention& weights, const float* in, const PassRows& pass);
  [[nodiscard]] float* head_queries(const DeviceLatentAttention& weights, const float* in, const PassRows& pass);
  void normalise(float* x, const DeviceVector& weight, int64_t rows, int64_t n, int64_t stride,
                 kernels::CudaStream stream) const;
  void normalise_heads(const DeviceVector& weight, int64_t first, int64_t count, const PassRows& pass) const;

  const ModelConfig* config_;
  Workspace heads_;     // [rows, (q_heads + 2 kv_heads) * head_dim], or a latent's queries [rows, q_heads * head_dim]
  Workspace parts_;     // [rows, width]: the latent, then the rotated key
  Workspace low_;       // [rows, q_lora_rank]
  Workspace entries_;   // [rows, width]: cached channels
  Workspace absorbed_;  // [rows, q_heads, width]: queries as entries see them
  Workspace values_;    // [rows, q_heads * v_head_dim]
  kernels::CudaBuffer entry_places_;    // [width] of int32_t: where parts_ go among cached channels
  kernels::CudaBuffer rotated_places_;  // [rope_head_dim] of int32_t: where rotated channels go
  float rotated_scale_ = 1;             // YaRN's factor of cos and sin of both sides, which queries take
};

}  // namespace kvarena::device
