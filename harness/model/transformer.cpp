#include "harness/model/transformer.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/model/rope_frequencies.h"
#include "harness/model/weights.h"
#include "kernels/attention/attention.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rope/rope.h"

namespace kvarena {
namespace {

/// Grows to the largest size asked for and is never cleared: what a pass needs is written before it is read.
class Workspace {
 public:
  float* at_least(int64_t floats) {
    if (static_cast<int64_t>(data_.size()) < floats) data_.resize(static_cast<size_t>(floats));
    return data_.data();
  }

 private:
  std::vector<float> data_;
};

/// This decoder is dense, with ordinary attention and half-split rotation.
void check_supported(const ModelConfig& config) {
  const auto refuse = [&](const std::string& what) {
    fail({.place = config.name, .found = what, .expected = "a dense decoder of the Llama kind"});
  };
  if (config.expert.experts > 0) refuse(fmt::format("{} experts", config.expert.experts));
  if (config.latent.kv_lora_rank > 0) refuse("latent attention");
  if (config.rope_interleaved) refuse("interleaved rotation");
  if (config.output_bias || config.mlp_bias) refuse("biases outside the attention's inputs");
  if (config.sliding_window > 0 && config.sliding_first_layer > 0) refuse("a sliding window in some layers only");
}

/// Name, shape and first row of every tensor of floats.
std::string fingerprint_of(const Checkpoint& checkpoint) {
  std::string text;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (tensor.type == TensorType::other || tensor.elements() == 0) continue;
    text += fmt::format("{} [{}]\n", tensor.name, fmt::join(tensor.shape, ", "));
    std::vector<float> row(static_cast<size_t>(tensor.columns()));
    checkpoint.read_rows_f32(tensor.name, 0, 1, row);
    text.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
  }
  return sha256(text);
}

}  // namespace

struct Transformer::Impl {
  ModelConfig config;
  TransformerOptions options;
  ModelWeights weights;
  RopeFrequencies rope;
  std::string fingerprint;
  LayerShape shape;
  float eps = 0;  // of every RMS norm

  // Activations of the pass under way; R rows = new tokens of all sequences.
  Workspace x;                     // [R, hidden_size], the residual stream
  Workspace normed;                // [R, hidden_size]
  Workspace qkv;                   // [R, (q_heads + 2 kv_heads) * head_dim]
  Workspace attended;              // [R, q_heads * head_dim]
  Workspace projected;             // [R, hidden_size]
  Workspace inner;                 // [R, 2 * intermediate_size]
  Workspace running;               // [R, q_heads] maxima, then [R, q_heads] sums
  Workspace lse;                   // [R, q_heads]
  Workspace turn;                  // cos [R, rotary / 2], then sin
  Workspace logits;                // [wanted rows, vocab_size]
  std::vector<int32_t> positions;  // [R]

  void check(std::span<const SequencePass> batch) const;
  void embed(std::span<const SequencePass> batch, int64_t rows);
  void attention_block(int64_t layer, std::span<const SequencePass> batch, int64_t rows);
  void attend_sequence(int64_t layer, const SequencePass& pass, int64_t first_row);
  void mlp_block(const LayerWeights& layer, int64_t rows);
  int64_t collect_wanted(std::span<const SequencePass> batch);

  [[nodiscard]] int64_t qkv_width() const { return (shape.q_heads + 2 * shape.kv_heads) * shape.head_dim; }
};

void Transformer::Impl::check(std::span<const SequencePass> batch) const {
  for (const SequencePass& pass : batch) {
    KVARENA_ASSERT(!pass.tokens.empty(), "a sequence without tokens");
    const int64_t length = pass.cache->length + static_cast<int64_t>(pass.tokens.size());
    if (length > config.max_position) {
      fail({.place = "sequence",
            .found = fmt::format("{} tokens", length),
            .expected = fmt::format("at most {}, the model's window", config.max_position)});
    }
    for (const int32_t token : pass.tokens) {
      if (token >= 0 && token < config.vocab_size) continue;
      fail({.place = "sequence",
            .found = fmt::format("token id {}", token),
            .expected = fmt::format("0 to {}", config.vocab_size - 1)});
    }
  }
}

void Transformer::Impl::embed(std::span<const SequencePass> batch, int64_t rows) {
  float* row = x.at_least(rows * config.hidden_size);
  positions.clear();
  for (const SequencePass& pass : batch) {
    for (size_t i = 0; i < pass.tokens.size(); ++i, row += config.hidden_size) {
      weights.embedding.unpack_row(pass.tokens[i], row);
      positions.push_back(static_cast<int32_t>(pass.cache->length + static_cast<int64_t>(i)));
    }
  }
  const int64_t half = shape.head_dim / 2;
  float* cos = turn.at_least(2 * rows * half);
  kernels::rotation_tables(positions.data(), rows, rope.inverse.data(), half, rope.magnitude, cos, cos + rows * half);
}

void Transformer::Impl::attend_sequence(int64_t layer, const SequencePass& pass, int64_t first_row) {
  const auto q_len = static_cast<int64_t>(pass.tokens.size());
  const int64_t width = qkv_width();
  const int64_t q_width = shape.q_heads * shape.head_dim;
  const float* q = qkv.at_least(0) + first_row * width;
  const float* keys = q + q_width;
  const float* values = keys + shape.kv_heads * shape.head_dim;

  LayerCache& cache = pass.cache->layers[layer];
  cache.append(keys, values, q_len, width, pass.cache->length);

  const bool hidden_wanted = pass.hooks != nullptr && pass.hooks->wants_hidden();
  const LayerQueries queries{.q = q,
                             .q_len = q_len,
                             .q_stride = width,
                             .position = pass.cache->length,
                             .hidden = hidden_wanted ? normed.at_least(0) + first_row * config.hidden_size : nullptr,
                             .tokens = pass.tokens.data()};
  if (pass.hooks != nullptr) pass.hooks->before_attention(layer, cache, queries);

  kernels::AttentionState state{.out = attended.at_least(0) + first_row * q_width,
                                .max = running.at_least(0),
                                .sum = running.at_least(0) + q_len * shape.q_heads};
  float* denominators = lse.at_least(q_len * shape.q_heads);
  kernels::init_attention(state, q_len, shape.q_heads, shape.head_dim);
  cache.attend(queries, state);
  kernels::finish_attention(state, q_len, shape.q_heads, shape.head_dim, denominators);
  if (pass.hooks != nullptr) pass.hooks->after_attention(layer, cache, queries, denominators);
}

void Transformer::Impl::attention_block(int64_t layer_index, std::span<const SequencePass> batch, int64_t rows) {
  const LayerWeights& layer = weights.layers[layer_index];
  const int64_t hidden = config.hidden_size;
  const int64_t width = qkv_width();
  const int64_t d = shape.head_dim;
  const int64_t half = d / 2;

  float* in = normed.at_least(rows * hidden);
  kernels::rms_norm({.x = x.at_least(0),
                     .weight = layer.attention_norm.data(),
                     .y = in,
                     .rows = rows,
                     .n = hidden,
                     .x_stride = hidden,
                     .y_stride = hidden,
                     .eps = eps});
  float* heads = qkv.at_least(rows * width);
  kernels::matmul({.x = in,
                   .m = rows,
                   .x_stride = hidden,
                   .w = &layer.qkv,
                   .bias = layer.qkv_bias.empty() ? nullptr : layer.qkv_bias.data(),
                   .y = heads,
                   .y_stride = width});

  const auto normalise = [&](float* first, int64_t count, const std::vector<float>& weight) {
    if (weight.empty()) return;
    for (int64_t r = 0; r < rows; ++r) {
      float* row = first + r * width;
      kernels::rms_norm({.x = row,
                         .weight = weight.data(),
                         .y = row,
                         .rows = count,
                         .n = d,
                         .x_stride = d,
                         .y_stride = d,
                         .eps = eps});
    }
  };
  normalise(heads, shape.q_heads, layer.q_norm);
  normalise(heads + shape.q_heads * d, shape.kv_heads, layer.k_norm);

  // Queries and keys stand side by side in a row: one rotation serves both.
  const float* cos = turn.at_least(0);
  kernels::rotate({.x = heads,
                   .tokens = rows,
                   .heads = shape.q_heads + shape.kv_heads,
                   .head_dim = d,
                   .token_stride = width,
                   .head_stride = d,
                   .rotary = d,
                   .cos = cos,
                   .sin = cos + rows * half});

  attended.at_least(rows * shape.q_heads * d);
  running.at_least(2 * rows * shape.q_heads);
  int64_t first_row = 0;
  for (const SequencePass& pass : batch) {
    attend_sequence(layer_index, pass, first_row);
    first_row += static_cast<int64_t>(pass.tokens.size());
  }
  float* out = projected.at_least(rows * hidden);
  kernels::matmul({.x = attended.at_least(0),
                   .m = rows,
                   .x_stride = shape.q_heads * d,
                   .w = &layer.output,
                   .y = out,
                   .y_stride = hidden});
  kernels::add_into(x.at_least(0), out, rows * hidden);
}

void Transformer::Impl::mlp_block(const LayerWeights& layer, int64_t rows) {
  const int64_t hidden = config.hidden_size;
  const int64_t size = config.intermediate_size;
  float* in = normed.at_least(rows * hidden);
  kernels::rms_norm({.x = x.at_least(0),
                     .weight = layer.mlp_norm.data(),
                     .y = in,
                     .rows = rows,
                     .n = hidden,
                     .x_stride = hidden,
                     .y_stride = hidden,
                     .eps = eps});
  float* gates = inner.at_least(rows * 2 * size);
  kernels::matmul({.x = in, .m = rows, .x_stride = hidden, .w = &layer.gate_up, .y = gates, .y_stride = 2 * size});
  kernels::silu_mul({.gate = gates,
                     .up = gates + size,
                     .out = gates,
                     .rows = rows,
                     .n = size,
                     .gate_stride = 2 * size,
                     .up_stride = 2 * size,
                     .out_stride = 2 * size});
  float* out = projected.at_least(rows * hidden);
  kernels::matmul({.x = gates, .m = rows, .x_stride = 2 * size, .w = &layer.down, .y = out, .y_stride = hidden});
  kernels::add_into(x.at_least(0), out, rows * hidden);
}

/// Moves the residual rows whose logits are wanted to the front of the stream and returns their number.
int64_t Transformer::Impl::collect_wanted(std::span<const SequencePass> batch) {
  const int64_t hidden = config.hidden_size;
  float* stream = x.at_least(0);
  int64_t wanted = 0;
  int64_t row = 0;
  for (const SequencePass& pass : batch) {
    const auto count = static_cast<int64_t>(pass.tokens.size());
    const int64_t taken = pass.logits == LogitsRows::all ? count : pass.logits == LogitsRows::last ? 1 : 0;
    std::copy_n(stream + (row + count - taken) * hidden, taken * hidden, stream + wanted * hidden);
    wanted += taken;
    row += count;
  }
  return wanted;
}

Transformer::Transformer(const ModelConfig& config, const Checkpoint& checkpoint, const TransformerOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->config = config;
  impl_->options = options;
  impl_->eps = static_cast<float>(config.rms_norm_eps);
  check_supported(config);
  impl_->weights = load_weights(config, checkpoint, options.weights);
  impl_->rope = rope_frequencies(config);
  impl_->fingerprint = fingerprint_of(checkpoint);
  impl_->shape = {.q_heads = config.q_heads,
                  .kv_heads = config.kv_heads,
                  .head_dim = config.head_dim,
                  .window = config.sliding_window,
                  .dtype = options.cache};
}

Transformer::~Transformer() = default;
Transformer::Transformer(Transformer&&) noexcept = default;

const ModelConfig& Transformer::config() const { return impl_->config; }
const TransformerOptions& Transformer::options() const { return impl_->options; }
LayerShape Transformer::layer_shape() const { return impl_->shape; }
KvCache Transformer::make_cache() const { return {impl_->config.layers, impl_->shape}; }
std::vector<float> Transformer::output_projection(int64_t layer) const {
  const kernels::PackedMatrix& packed = impl_->weights.layers[layer].output;
  std::vector<float> rows(static_cast<size_t>(packed.n() * packed.k()));
  for (int64_t row = 0; row < packed.n(); ++row) packed.unpack_row(row, rows.data() + row * packed.k());
  return rows;
}
const RopeFrequencies& Transformer::rope() const { return impl_->rope; }
const std::string& Transformer::fingerprint() const { return impl_->fingerprint; }
int64_t Transformer::weight_bytes() const { return impl_->weights.bytes(); }

std::span<const float> Transformer::forward(std::span<const SequencePass> batch) {
  Impl& m = *impl_;
  m.check(batch);
  int64_t rows = 0;
  for (const SequencePass& pass : batch) rows += static_cast<int64_t>(pass.tokens.size());

  m.embed(batch, rows);
  for (int64_t layer = 0; layer < m.config.layers; ++layer) {
    m.attention_block(layer, batch, rows);
    m.mlp_block(m.weights.layers[layer], rows);
  }
  for (const SequencePass& pass : batch) pass.cache->length += static_cast<int64_t>(pass.tokens.size());

  const int64_t wanted = m.collect_wanted(batch);
  const int64_t hidden = m.config.hidden_size;
  float* in = m.normed.at_least(wanted * hidden);
  kernels::rms_norm({.x = m.x.at_least(0),
                     .weight = m.weights.final_norm.data(),
                     .y = in,
                     .rows = wanted,
                     .n = hidden,
                     .x_stride = hidden,
                     .y_stride = hidden,
                     .eps = m.eps});
  float* logits = m.logits.at_least(wanted * m.config.vocab_size);
  kernels::matmul(
      {.x = in, .m = wanted, .x_stride = hidden, .w = &m.weights.head(), .y = logits, .y_stride = m.config.vocab_size});
  return {logits, static_cast<size_t>(wanted * m.config.vocab_size)};
}

}  // namespace kvarena
