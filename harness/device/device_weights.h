#pragma once
// A decoder's weights on one device or several.

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "harness/model/checkpoint.h"
#include "harness/model/config.h"
#include "kernels/matmul/matmul_cuda.h"

namespace kvarena::device {

/// Numbers on the device; null when there are none.
class DeviceVector {
 public:
  DeviceVector() = default;
  explicit DeviceVector(const std::vector<float>& host);
  [[nodiscard]] const float* data() const { return static_cast<const float*>(data_.data()); }

 private:
  kernels::CudaBuffer data_;
};

/// y = x * matrix^T + bias.
struct DeviceProjection {
  kernels::DeviceMatrix matrix;  // [out, in]
  DeviceVector bias;             // [out] or none
};

/// HeadAttention on the device.
struct DeviceHeadAttention {
  DeviceProjection qkv;         // [(q_heads + 2 kv_heads) * head_dim, hidden_size]: queries, keys, values
  DeviceVector q_norm, k_norm;  // [head_dim] or none
  DeviceProjection output;      // [hidden_size, q_heads * head_dim]
};

/// LatentAttention on the device, with its orders of rows and channels.
struct DeviceLatentAttention {
  std::optional<DeviceProjection> q_down;        // [q_lora_rank, hidden_size]
  DeviceVector q_norm;                           // [q_lora_rank] or none
  DeviceProjection q;                            // [q_heads * (nope + rope), q_lora_rank or hidden_size]
  DeviceProjection latent;                       // [kv_lora_rank + rope, hidden_size]
  DeviceVector latent_norm;                      // [kv_lora_rank]
  std::vector<kernels::DeviceMatrix> to_latent;  // [q_heads] of [width, nope]
  std::vector<kernels::DeviceMatrix> to_value;   // [q_heads] of [v_head_dim, width]
  DeviceProjection output;                       // [hidden_size, q_heads * v_head_dim]
};

struct DeviceDense {
  DeviceProjection gate_up;  // [2 * size, hidden_size]: gates, then ups
  DeviceProjection down;     // [hidden_size, size]
};

struct DeviceSparse {
  kernels::DeviceMatrix router;   // [experts, hidden_size], always float32: a rounding may change who is chosen
  std::vector<float> correction;  // [experts] on the host, where experts are chosen; empty without
  std::vector<DeviceDense> experts;
  std::optional<DeviceDense> shared;
};

struct DeviceLayerWeights {
  DeviceVector attention_norm;  // [hidden_size]
  std::variant<DeviceHeadAttention, DeviceLatentAttention> attention;
  DeviceVector mlp_norm;  // [hidden_size]
  std::variant<DeviceDense, DeviceSparse> mlp;
};

/// The embedding is on the first layer's device, final norm and head are on the last one's.
struct DeviceWeights {
  kernels::DeviceMatrix embedding;  // [vocab_size, hidden_size]
  std::vector<DeviceLayerWeights> layers;
  DeviceVector final_norm;                  // [hidden_size]
  std::optional<DeviceProjection> lm_head;  // [vocab_size, hidden_size]; absent where it is the embedding
  int64_t matrix_bytes = 0;                 // of all matrices
};

/// Reads what the config's architecture needs and uploads it, a block of rows at a time; `devices` [layers] has each
/// layer's. Throws UserError as load_weights() does.
[[nodiscard]] DeviceWeights load_device_weights(const ModelConfig& config, const Checkpoint& checkpoint,
                                                kernels::DType dtype, std::span<const int64_t> devices);

/// Weights of the config's shapes without a checkpoint, for measuring: one block of random rows again and again, small
/// enough that activations stay of size one; norms are 1.
[[nodiscard]] DeviceWeights random_device_weights(const ModelConfig& config, kernels::DType dtype, uint64_t seed,
                                                  std::span<const int64_t> devices);

}  // namespace kvarena::device
