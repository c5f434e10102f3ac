#include "harness/model/attention_projections.h"

#include <algorithm>
#include <cmath>

#include "harness/model/products.h"
#include "harness/model/rope_frequencies.h"
#include "kernels/rope/rope.h"

namespace kvarena {
namespace {

/// Rotates `heads` parts of 2 * half channels, the first at x, in every row of the pass.
void turn(float* x, int64_t stride, int64_t heads, int64_t head_stride, int64_t rotary, Activations& a) {
  const float* cos = a.turns[a.rotation].at_least(0);
  kernels::rotate({.x = x,
                   .tokens = a.rows,
                   .heads = heads,
                   .head_dim = rotary,
                   .token_stride = stride,
                   .head_stride = head_stride,
                   .rotary = rotary,
                   .cos = cos,
                   .sin = cos + a.rows * (rotary / 2)});
}

/// Normalises the heads of each row of x, `channels` together: one by one, or all at once where the norm is so wide.
void normalise_heads(float* x, const std::vector<float>& weight, int64_t channels, int64_t stride, Activations& a) {
  if (weight.empty()) return;
  const auto size = std::ssize(weight);
  for (int64_t r = 0; r < a.rows; ++r) a.normalise(x + r * stride, weight, x + r * stride, channels / size, size, size);
}

/// Queries take what the model's scores are scaled by beside 1 / sqrt(head_dim), which caches do.
void scale_queries(float* q, const HeadAttention& weights, const ModelConfig& config, int64_t stride, Activations& a) {
  const int64_t n = config.q_heads * config.head_dim;
  if (weights.query_scale != 1) kernels::scale_rows(q, a.rows, n, stride, weights.query_scale);
  if (!weights.by_temperature) return;
  for (int64_t r = 0; r < a.rows; ++r) {
    const int64_t steps = (a.positions[static_cast<size_t>(r)] + 1) / config.temperature_step;
    const double factor = 1 + config.temperature * std::log1p(static_cast<double>(steps));
    kernels::scale_rows(q + r * stride, 1, n, stride, static_cast<float>(factor));
  }
}

/// Caches scale scores by 1/sqrt of their own head_dim; a latent's scores want that of the heads behind it.
float latent_query_scale(const ModelConfig& config) {
  const double wanted = rope_score_factor(config.rope_scaling) / std::sqrt(static_cast<double>(config.head_dim));
  return static_cast<float>(wanted * std::sqrt(static_cast<double>(config.latent.width())));
}

/// [R, q_heads, nope + rope], the last part not yet rotated.
float* head_queries(const LatentAttention& weights, const float* in, Activations& a) {
  const int64_t width = weights.q.out();
  float* q = a.heads.at_least(a.rows * width);
  if (!weights.q_down) {
    project(weights.q, in, a.rows, a.hidden, q);
    return q;
  }
  const int64_t rank = weights.q_down->out();
  float* low = a.narrow.at_least(a.rows * rank);
  project(*weights.q_down, in, a.rows, a.hidden, low);
  a.normalise(low, weights.q_norm, low, a.rows, rank, rank);
  project(weights.q, low, a.rows, rank, q);
  return q;
}

/// [R, width], normalised, rotated and in the order of cached channels.
const float* latent_keys(const LatentAttention& weights, const LatentAttentionConfig& latent, const float* in,
                         Activations& a) {
  const int64_t rank = latent.kv_lora_rank;
  const int64_t rope = latent.rope_head_dim;
  const int64_t width = latent.width();
  float* parts = a.narrow.at_least(a.rows * width);  // the latent, then the rotated key
  project(weights.latent, in, a.rows, a.hidden, parts);
  a.normalise(parts, weights.latent_norm, parts, a.rows, rank, width);
  turn(parts + rank, width, 1, rope, rope, a);
  float* keys = a.latent.at_least(a.rows * width);
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* from = parts + r * width;
    float* to = keys + r * width;
    for (const int64_t half : {0, 1}) {
      std::copy_n(from + rank + half * rope / 2, rope / 2, to + latent.rotated_channel(half * rope / 2));
      std::copy_n(from + half * rank / 2, rank / 2, to + latent.latent_channel(half * rank / 2));
    }
  }
  return keys;
}

}  // namespace

LayerShape cache_shape(const ModelConfig& config, int64_t layer, DType dtype) {
  const bool latent = config.is_latent();
  return {.q_heads = config.q_heads,
          .kv_heads = latent ? 1 : config.kv_heads,
          .head_dim = latent ? config.latent.width() : config.head_dim,
          .window = config.is_sliding_layer(layer) ? config.sliding_window : 0,
          .chunked = config.chunked_window && config.is_sliding_layer(layer),
          .dtype = dtype};
}

std::vector<float> output_matrix(const HeadAttention& weights, const ModelConfig& /*config*/) {
  return unpacked(weights.output.parts);
}

std::vector<float> output_matrix(const LatentAttention& weights, const ModelConfig& config) {
  const int64_t value_dim = config.latent.v_head_dim;
  const int64_t width = config.latent.width();
  std::vector<float> rows(static_cast<size_t>(config.hidden_size * config.q_heads * width), 0.0F);
  const std::vector<float> out = unpacked(weights.output.parts);  // [hidden_size, q_heads * value_dim]
  for (int64_t head = 0; head < config.q_heads; ++head) {
    const std::vector<float> value = unpacked({&weights.to_value[head], 1});  // [value_dim, width]
    for (int64_t i = 0; i < config.hidden_size; ++i) {
      float* row = rows.data() + (i * config.q_heads + head) * width;
      for (int64_t j = 0; j < value_dim; ++j) {
        const float factor = out[(i * config.q_heads + head) * value_dim + j];
        for (int64_t c = 0; c < width; ++c) row[c] += factor * value[j * width + c];
      }
    }
  }
  return rows;
}

RopeFrequencies cached_rotation(const ModelConfig& config, const RopeFrequencies& rope) {
  RopeFrequencies whole = rope;
  if (config.is_latent()) whole.inverse.resize(static_cast<size_t>(config.latent.width() / 2), 0.0);
  return whole;
}

QkvRows attention_input(const HeadAttention& weights, const ModelConfig& config, const float* in, Activations& a) {
  const int64_t d = config.head_dim;
  const int64_t width = weights.qkv.out();
  float* rows = a.heads.at_least(a.rows * width);
  float* q = rows + (config.output_gate ? config.q_heads * d : 0);
  float* keys = q + config.q_heads * d;
  project(weights.qkv, in, a.rows, a.hidden, rows);
  normalise_heads(q, weights.q_norm, config.q_heads * d, width, a);
  normalise_heads(keys, weights.k_norm, config.kv_heads * d, width, a);
  // Queries and keys stand side by side in a row: one rotation serves both.
  turn(q, width, config.q_heads + config.kv_heads, d, d, a);
  scale_queries(q, weights, config, width, a);
  return {.q = q, .q_stride = width, .keys = keys, .values = keys + config.kv_heads * d, .kv_stride = width};
}

QkvRows attention_input(const LatentAttention& weights, const ModelConfig& config, const float* in, Activations& a) {
  const LatentAttentionConfig& latent = config.latent;
  const float* keys = latent_keys(weights, latent, in, a);

  float* q = head_queries(weights, in, a);
  const int64_t d = config.head_dim;
  const int64_t q_width = config.q_heads * d;
  turn(q + latent.nope_head_dim, q_width, config.q_heads, d, latent.rope_head_dim, a);

  const int64_t width = latent.width();
  const int64_t out_width = config.q_heads * width;
  float* seen = a.narrow.at_least(a.rows * out_width);  // queries as entries see them
  project_heads(weights.to_latent, {.x = q, .rows = a.rows, .stride = q_width, .head_stride = d}, seen);
  const float scale = latent_query_scale(config);
  for (int64_t r = 0; r < a.rows * config.q_heads; ++r) {
    const float* rotated = q + r * d + latent.nope_head_dim;
    for (int64_t c = 0; c < latent.rope_head_dim; ++c) {
      seen[r * width + latent.rotated_channel(c)] = a.rotated_scale * rotated[c];
    }
  }
  for (int64_t i = 0; i < a.rows * out_width; ++i) seen[i] *= scale;
  return {.q = seen, .q_stride = out_width, .keys = keys, .values = keys, .kv_stride = width};
}

void attention_output(const HeadAttention& weights, const ModelConfig& config, const float* attended, float* out,
                      Activations& a) {
  const int64_t n = config.q_heads * config.head_dim;
  if (config.output_gate) {  // the sigmoids still stand before the pass's queries
    float* gated = a.narrow.at_least(a.rows * n);
    kernels::sigmoid_mul({a.heads.at_least(0), attended, gated, a.rows, n, weights.qkv.out(), n, n});
    attended = gated;
  }
  project(weights.output, attended, a.rows, n, out);
}

void attention_output(const LatentAttention& weights, const ModelConfig& config, const float* attended, float* out,
                      Activations& a) {
  const int64_t width = config.latent.width();
  const int64_t value_width = config.q_heads * config.latent.v_head_dim;
  float* values = a.heads.at_least(a.rows * value_width);
  project_heads(weights.to_value,
                {.x = attended, .rows = a.rows, .stride = config.q_heads * width, .head_stride = width}, values);
  project(weights.output, values, a.rows, value_width, out);
}

}  // namespace kvarena
