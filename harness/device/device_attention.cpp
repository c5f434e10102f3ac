#include "harness/device/device_attention.h"

#include <cmath>
#include <vector>

#include "harness/device/device_products.h"
#include "harness/model/rope_frequencies.h"
#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/rope/rope_cuda.h"

namespace kvarena::device {
namespace {

/// y = x * w^T of every head: x [rows, ...] has a head's k inputs at multiples of head_stride; y [rows, heads, n].
void project_heads(const std::vector<kernels::DeviceMatrix>& heads, const float* x, int64_t x_stride,
                   int64_t head_stride, float* y, const PassRows& pass) {
  const int64_t n = heads.front().n();
  for (size_t h = 0; h < heads.size(); ++h) {
    const auto head = static_cast<int64_t>(h);
    kernels::matmul_cuda({.x = x + head * head_stride,
                          .m = pass.rows,
                          .x_stride = x_stride,
                          .w = &heads[h],
                          .y = y + head * n,
                          .y_stride = std::ssize(heads) * n},
                         pass.stream);
  }
}

/// Rotates `heads` parts of `rotary` channels, the first at x, in every row of the pass.
void turn(float* x, int64_t stride, int64_t heads, int64_t head_stride, int64_t rotary, const PassRows& pass) {
  kernels::rotate_cuda({.x = x,
                        .tokens = pass.rows,
                        .heads = heads,
                        .head_dim = rotary,
                        .token_stride = stride,
                        .head_stride = head_stride,
                        .rotary = rotary,
                        .cos = pass.cos,
                        .sin = pass.sin},
                       pass.stream);
}

kernels::CudaBuffer uploaded(const std::vector<int32_t>& numbers) {
  kernels::CudaBuffer to(std::ssize(numbers) * 4);
  kernels::cuda_upload(to.data(), numbers.data(), std::ssize(numbers) * 4, nullptr);
  kernels::cuda_synchronize(nullptr);
  return to;
}

}  // namespace

DeviceAttention::DeviceAttention(const ModelConfig& config) : config_(&config) {
  if (!config.is_latent()) return;
  const LatentAttentionConfig& latent = config.latent;
  std::vector<int32_t> entry, rotated;
  for (int64_t i = 0; i < latent.kv_lora_rank; ++i) entry.push_back(static_cast<int32_t>(latent.latent_channel(i)));
  for (int64_t i = 0; i < latent.rope_head_dim; ++i) rotated.push_back(static_cast<int32_t>(latent.rotated_channel(i)));
  entry.insert(entry.end(), rotated.begin(), rotated.end());
  entry_places_ = uploaded(entry);
  rotated_places_ = uploaded(rotated);
  const float magnitude = rope_frequencies(config).magnitude;
  rotated_scale_ = magnitude * magnitude;
}

float DeviceAttention::scale() const {
  const double factor = config_->is_latent() ? rope_score_factor(config_->rope_scaling) : 1;
  return static_cast<float>(factor / std::sqrt(static_cast<double>(config_->head_dim)));
}

AttentionLayout DeviceAttention::layout() const {
  const int64_t d = config_->head_dim, q_heads = config_->q_heads, kv_heads = config_->kv_heads;
  if (config_->is_latent()) {
    const int64_t width = config_->latent.width();
    return {.q_stride = q_heads * width, .kv_stride = width};
  }
  const int64_t stride = (q_heads + 2 * kv_heads) * d;
  return {.q_stride = stride,
          .kv_stride = stride,
          .together = true,
          .keys = q_heads * d,
          .values_behind_keys = kv_heads * d};
}

/// As layout() says, from where queries, keys and values begin.
QkvRows DeviceAttention::rows_at(const float* q, const float* keys) const {
  const AttentionLayout at = layout();
  return {
      .q = q, .q_stride = at.q_stride, .keys = keys, .values = keys + at.values_behind_keys, .kv_stride = at.kv_stride};
}

void DeviceAttention::make_room(int64_t rows, int64_t& moves) {
  const int64_t q_width = config_->q_heads * config_->head_dim;
  if (!config_->is_latent()) {
    heads_.at_least(rows * (q_width + 2 * config_->kv_heads * config_->head_dim), moves);
    return;
  }
  const LatentAttentionConfig& latent = config_->latent;
  heads_.at_least(rows * q_width, moves);
  parts_.at_least(rows * latent.width(), moves);
  low_.at_least(rows * latent.q_lora_rank, moves);
  entries_.at_least(rows * latent.width(), moves);
  absorbed_.at_least(rows * config_->q_heads * latent.width(), moves);
  values_.at_least(rows * config_->q_heads * latent.v_head_dim, moves);
}

void DeviceAttention::normalise(float* x, const DeviceVector& weight, int64_t rows, int64_t n, int64_t stride,
                                kernels::CudaStream stream) const {
  kernels::rms_norm_cuda({.x = x,
                          .weight = weight.data(),
                          .y = x,
                          .rows = rows,
                          .n = n,
                          .x_stride = stride,
                          .y_stride = stride,
                          .eps = static_cast<float>(config_->rms_norm_eps)},
                         stream);
}

/// Heads first .. first+count-1 of every row, when the model normalises them.
void DeviceAttention::normalise_heads(const DeviceVector& weight, int64_t first, int64_t count,
                                      const PassRows& pass) const {
  if (weight.data() == nullptr) return;
  const int64_t d = config_->head_dim;
  kernels::head_norm_cuda({.x = heads_.data() + first * d,
                           .weight = weight.data(),
                           .tokens = pass.rows,
                           .heads = count,
                           .n = d,
                           .token_stride = (config_->q_heads + 2 * config_->kv_heads) * d,
                           .head_stride = d,
                           .eps = static_cast<float>(config_->rms_norm_eps)},
                          pass.stream);
}

QkvRows DeviceAttention::input(const DeviceHeadAttention& weights, const float* in, const PassRows& pass) {
  const int64_t d = config_->head_dim, q_heads = config_->q_heads, kv_heads = config_->kv_heads;
  float* q = heads_.data();
  project(weights.qkv, in, pass.rows, q, /*add=*/false, pass.stream);
  normalise_heads(weights.q_norm, 0, q_heads, pass);
  normalise_heads(weights.k_norm, q_heads, kv_heads, pass);
  // Queries and keys stand side by side in a row: one rotation serves both.
  turn(q, layout().q_stride, q_heads + kv_heads, d, d, pass);
  return rows_at(q, q + layout().keys);
}

/// [rows, width], normalised, rotated and in the order of cached channels.
const float* DeviceAttention::latent_keys(const DeviceLatentAttention& weights, const float* in, const PassRows& pass) {
  const LatentAttentionConfig& latent = config_->latent;
  const int64_t rank = latent.kv_lora_rank, width = latent.width();
  float* parts = parts_.data();
  project(weights.latent, in, pass.rows, parts, /*add=*/false, pass.stream);
  normalise(parts, weights.latent_norm, pass.rows, rank, width, pass.stream);
  turn(parts + rank, width, 1, latent.rope_head_dim, latent.rope_head_dim, pass);
  kernels::move_channels_cuda({.x = parts,
                               .to = entries_.data(),
                               .place = static_cast<const int32_t*>(entry_places_.data()),
                               .rows = pass.rows,
                               .n = width,
                               .x_stride = width,
                               .to_stride = width},
                              pass.stream);
  return entries_.data();
}

/// [rows, q_heads, nope + rope], the last part rotated.
float* DeviceAttention::head_queries(const DeviceLatentAttention& weights, const float* in, const PassRows& pass) {
  const LatentAttentionConfig& latent = config_->latent;
  float* q = heads_.data();
  if (weights.q_down) {
    const int64_t rank = latent.q_lora_rank;
    project(*weights.q_down, in, pass.rows, low_.data(), /*add=*/false, pass.stream);
    normalise(low_.data(), weights.q_norm, pass.rows, rank, rank, pass.stream);
    in = low_.data();
  }
  project(weights.q, in, pass.rows, q, /*add=*/false, pass.stream);
  const int64_t d = config_->head_dim;
  turn(q + latent.nope_head_dim, config_->q_heads * d, config_->q_heads, d, latent.rope_head_dim, pass);
  return q;
}

QkvRows DeviceAttention::input(const DeviceLatentAttention& weights, const float* in, const PassRows& pass) {
  const LatentAttentionConfig& latent = config_->latent;
  const int64_t d = config_->head_dim, q_heads = config_->q_heads, width = latent.width();
  const float* keys = latent_keys(weights, in, pass);
  const float* q = head_queries(weights, in, pass);
  project_heads(weights.to_latent, q, q_heads * d, d, absorbed_.data(), pass);
  kernels::move_channels_cuda({.x = q + latent.nope_head_dim,
                               .to = absorbed_.data(),
                               .place = static_cast<const int32_t*>(rotated_places_.data()),
                               .rows = pass.rows * q_heads,
                               .n = latent.rope_head_dim,
                               .x_stride = d,
                               .to_stride = width,
                               .factor = rotated_scale_},
                              pass.stream);
  return rows_at(absorbed_.data(), keys);
}

void DeviceAttention::output(const DeviceHeadAttention& weights, const float* attended, float* x,
                             const PassRows& pass) {
  project(weights.output, attended, pass.rows, x, /*add=*/true, pass.stream);
}

void DeviceAttention::output(const DeviceLatentAttention& weights, const float* attended, float* x,
                             const PassRows& pass) {
  const int64_t width = config_->latent.width();
  project_heads(weights.to_value, attended, config_->q_heads * width, width, values_.data(), pass);
  project(weights.output, values_.data(), pass.rows, x, /*add=*/true, pass.stream);
}

}  // namespace kvarena::device
