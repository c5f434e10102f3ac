#include "harness/model/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ranges>

#include "harness/cache/tree_view.h"
#include "harness/core/error.h"
#include "harness/model/attend_sequence.h"
#include "harness/model/delta_rule.h"
#include "harness/model/feed_forward.h"
#include "harness/model/pass_checks.h"
#include "harness/model/products.h"
#include "harness/model/rope_frequencies.h"
#include "harness/model/transformer_impl.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/rope/rope.h"

namespace kvarena {
namespace {

/// The factor, rounded to the type of the weights as the reference library rounds it; that of weights as stored is f32.
float embedding_scale(const ModelConfig& config, std::optional<kernels::DType> weights) {
  const auto scale = static_cast<float>(config.embedding_scale);
  if (weights.value_or(kernels::DType::f32) == kernels::DType::f32) return scale;
  return kernels::half_to_f32(kernels::f32_to_half(scale, *weights), *weights);
}

kernels::DType dtype_named(const std::string& name) {
  for (const kernels::DType dtype : {kernels::DType::f32, kernels::DType::f16, kernels::DType::bf16}) {
    if (name == kernels::name_of(dtype)) return dtype;
  }
  KVARENA_ASSERT(false, name);  // its reader let nothing else through
  return kernels::DType::f32;
}

}  // namespace

TransformerOptions options_named(const std::string& weights, const std::string& cache, const std::string& arithmetic) {
  TransformerOptions options{.weights = std::nullopt, .cache = kernels::DType::f32};
  if (weights != "as stored") options.weights = options.cache = dtype_named(weights);
  if (!cache.empty()) options.cache = dtype_named(cache);
  if (arithmetic == "bf16") options.arithmetic = kernels::Arithmetic::bf16;
  return options;
}

void Transformer::Impl::check(std::span<const SequencePass> batch) const {
  for (const SequencePass& pass : batch) {
    KVARENA_ASSERT(!pass.tokens.empty(), "a sequence without tokens");
    KVARENA_ASSERT(pass.parents.empty() || pass.parents.size() == pass.tokens.size(),
                   fmt::format("{} parents of {} tokens", pass.parents.size(), pass.tokens.size()));
    const bool appends = pass.parents.empty() && pass.positions.empty();
    KVARENA_ASSERT(appends || states.empty(), "states take tokens in their order alone");
    KVARENA_ASSERT(pass.exit_after >= 0 && pass.exit_after <= config.layers, fmt::format("{}", pass.exit_after));
    if (!pass.positions.empty()) {
      const bool plain = pass.hooks == nullptr && pass.parents.empty() && pass.exit_after == 0;
      KVARENA_ASSERT(plain && pass.positions.size() == pass.tokens.size() && pass.logits != LogitsRows::all,
                     fmt::format("{} positions of {} tokens", pass.positions.size(), pass.tokens.size()));
      check_positions(pass.positions, pass.cache->length);
    }
    check_tokens(config, pass.tokens);
    check_window(config, length_after(pass));
  }
}

void Transformer::Impl::embed_rows(std::span<const int32_t> tokens, float* rows) const {
  read_rows(weights.embedding, tokens, rows);
  if (config.embedding_scale == 1) return;
  for (float& x : std::span(rows, tokens.size() * static_cast<size_t>(config.hidden_size))) x *= embedding_scale;
}

void Transformer::Impl::embed(std::span<const SequencePass> batch) {
  std::vector<int32_t> tokens;
  for (const SequencePass& pass : batch) tokens.insert(tokens.end(), pass.tokens.begin(), pass.tokens.end());
  embed_rows(tokens, a.x.at_least(a.rows * a.hidden));
}

void Transformer::Impl::tabulate(int64_t rotation, std::span<const int32_t> places, std::span<const int64_t> prompts,
                                 float* cos, float* sin) const {
  if (rotation == 0) return rotation_rows(config, ropes[0], places, prompts, cos, sin);
  kernels::rotation_tables(places.data(), std::ssize(places), ropes[rotation].inverse.data(), config.turned_dim() / 2,
                           ropes[rotation].magnitude, cos, sin);
}

/// Rotation tables of the stream's rows.
void Transformer::Impl::make_rotations(std::span<const SequencePass> batch) {
  a.positions.clear();
  lengths.clear();
  for (const SequencePass& pass : batch) {
    a.positions.insert(a.positions.end(), pass.positions.begin(), pass.positions.end());
    if (pass.positions.empty())
      append_positions(pass.cache->length, std::ssize(pass.tokens), pass.parents, a.positions);
    lengths.insert(lengths.end(), pass.tokens.size(), pass.cache->prompt_length);
  }
  const int64_t half = config.turned_dim() / 2;
  for (int64_t rotation = 0; rotation < (config.two_rotations() ? 2 : 1); ++rotation) {
    float* cos = a.turns[rotation].at_least(2 * a.rows * half);
    tabulate(rotation, a.positions, lengths, cos, cos + a.rows * half);
  }
}

void Transformer::Impl::add_to_stream(float* out, const std::vector<float>& norm) {
  if (!norm.empty()) a.normalise(out, norm, out, a.rows, a.hidden, a.hidden);
  if (config.residual_scale != 1) {
    kernels::scale_rows(out, a.rows, a.hidden, a.hidden, static_cast<float>(config.residual_scale));
  }
  kernels::add_into(a.x.at_least(0), out, a.rows * a.hidden);
}

void Transformer::Impl::add_attended(const LayerWeights& layer, const float* seen) {
  float* out = a.projected.at_least(a.rows * a.hidden);
  std::visit([&](const auto& kind) { attention_output(kind, config, seen, out, a); }, layer.attention);
  add_to_stream(out, layer.attention_out_norm);
}

void Transformer::Impl::attention_block(int64_t layer, std::span<const SequencePass> batch) {
  const LayerWeights& w = weights.layers[layer];
  const int64_t number = numbers[layer];
  const LayerShape& shape = shapes[number];
  a.rotation = rotation_of(layer);
  const float* in = a.normalise_stream(w.attention_norm, a.rows);
  const QkvRows heads = std::visit([&](const auto& kind) { return attention_input(kind, config, in, a); }, w.attention);

  float* seen = attended.at_least(a.rows * shape.q_heads * shape.head_dim);
  running.at_least(2 * a.rows * shape.q_heads);
  int64_t first = 0;
  for (const SequencePass& pass : batch) {
    const int64_t rows = std::ssize(pass.tokens), width = shape.q_heads * shape.head_dim;
    attend_sequence(
        number, pass, heads.from(first), in + first * a.hidden,
        {.attended = seen + first * width, .running = running.at_least(0), .lse = lse.at_least(rows * shape.q_heads)});
    first += rows;
  }
  add_attended(w, seen);
}

void Transformer::Impl::recurrent_block(int64_t layer, std::span<const SequencePass> batch) {
  const LayerWeights& w = weights.layers[layer];
  const float* const in = a.normalise_stream(w.attention_norm, a.rows);
  const float* rows = delta_input(*w.recurrent, config, in, a);
  const int64_t stride = w.recurrent->in.out();
  float* const read = attended.at_least(a.rows * config.delta.values());
  float* to = read;
  for (const SequencePass& pass : batch) {
    RecurrentState& state = pass.cache->states[numbers[layer]];
    KVARENA_ASSERT(state.tokens() == pass.cache->length,
                   fmt::format("a state of {} tokens in a cache of {}", state.tokens(), pass.cache->length));
    const int64_t count = std::ssize(pass.tokens);
    state.advance(rows, count, stride, to);
    rows += count * stride;
    to += count * config.delta.values();
  }
  float* const out = a.projected.at_least(a.rows * a.hidden);
  delta_output(*w.recurrent, config, read, out, a);
  add_to_stream(out, w.attention_out_norm);
}

void Transformer::Impl::mlp_block(const LayerWeights& layer) {
  const float* in = a.normalise_stream(layer.mlp_norm, a.rows);
  float* out = a.projected.at_least(a.rows * a.hidden);
  if (const auto* sparse = std::get_if<SparseFeedForward>(&layer.mlp)) {
    feed_forward(*sparse, config.expert, in, a.rows, out, a);
  } else {
    feed_forward(std::get<DenseFeedForward>(layer.mlp), in, a.rows, out, a);
  }
  add_to_stream(out, layer.mlp_out_norm);
}

/// Moves the residual rows whose logits are wanted to the front of the stream and returns their number.
int64_t Transformer::Impl::collect_wanted(std::span<const SequencePass> batch) {
  const int64_t hidden = a.hidden;
  float* stream = a.x.at_least(0);
  int64_t wanted = 0;
  int64_t row = 0;
  for (const SequencePass& pass : batch) {
    const auto count = static_cast<int64_t>(pass.tokens.size());
    const int64_t taken = wanted_rows(pass);
    std::copy_n(stream + (row + count - taken) * hidden, taken * hidden, stream + wanted * hidden);
    wanted += taken;
    row += count;
  }
  return wanted;
}

void Transformer::Impl::run_layer(int64_t layer, std::span<const SequencePass> batch) {
  const bool recurrent = config.is_recurrent(layer);
  recurrent ? recurrent_block(layer, batch) : attention_block(layer, batch);
  mlp_block(weights.layers[layer]);
  if (recurrent) return;
  const float* row = a.x.at_least(0);
  for (const SequencePass& pass : batch) {
    const auto count = static_cast<int64_t>(pass.tokens.size());
    if (pass.hooks != nullptr) pass.hooks->after_layer(numbers[layer], row, count, a.hidden);
    row += count * a.hidden;
  }
}

/// Sequences that leave early are taken out of the stream and the others close up; at the end all rows stand where they
/// stood in the batch.
void Transformer::Impl::run_layers_with_exits(std::span<const SequencePass> batch) {
  float* stream = a.x.at_least(0);
  float* finished = left.at_least(a.rows * a.hidden);
  const int64_t all_rows = a.rows;
  std::vector<SequencePass> running(batch.begin(), batch.end());
  std::vector<int64_t> offsets;  // offset of each running sequence's rows in the whole batch, in floats
  for (int64_t offset = 0; const SequencePass& pass : batch) {
    offsets.push_back(offset);
    offset += static_cast<int64_t>(pass.tokens.size()) * a.hidden;
  }
  for (int64_t layer = 0; !running.empty(); ++layer) {
    run_layer(layer, running);
    float* to = stream;
    size_t stay = 0;
    for (const float* from = stream; size_t i : std::views::iota(size_t{0}, running.size())) {
      const auto floats = static_cast<int64_t>(running[i].tokens.size()) * a.hidden;
      if (last_layer(running[i]) == layer) {
        std::copy_n(from, floats, finished + offsets[i]);
      } else {
        to = std::copy_n(from, floats, to);
        running[stay] = running[i];
        offsets[stay++] = offsets[i];
      }
      from += floats;
    }
    if (stay == running.size()) continue;
    running.resize(stay);
    a.rows = (to - stream) / a.hidden;
    make_rotations(running);
  }
  a.rows = all_rows;
  std::copy_n(finished, all_rows * a.hidden, stream);
}

void Transformer::Impl::predict(const float* normed, int64_t count, float* to) const {
  project(weights.head(), normed, count, config.hidden_size, to);
  if (config.logit_scale != 1) {
    kernels::scale_rows(to, count, config.vocab_size, config.vocab_size, static_cast<float>(config.logit_scale));
  }
  if (config.logit_cap == 0) return;
  const auto cap = static_cast<float>(config.logit_cap);
  for (float& logit : std::span(to, static_cast<size_t>(count * config.vocab_size))) {
    logit = cap * std::tanh(logit / cap);
  }
}

std::span<const float> Transformer::Impl::head(int64_t rows) {
  float* out = logits.at_least(rows * config.vocab_size);
  predict(a.normalise_stream(weights.final_norm, rows), rows, out);
  return {out, static_cast<size_t>(rows * config.vocab_size)};
}

void Transformer::Impl::note_layers() {
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const LayerWeights& w = weights.layers[layer];
    if (w.recurrent) {
      numbers.push_back(std::ssize(states));
      states.push_back(state_shape(config, *w.recurrent));
      continue;
    }
    numbers.push_back(std::ssize(holders));
    holders.push_back(layer);
    shapes.push_back(cache_shape(config, layer, options.cache));
    shapes.back().arithmetic = options.arithmetic;
    if (config.attention_sinks) shapes.back().sinks = std::get<HeadAttention>(w.attention).sinks.data();
  }
}

Transformer::Transformer(const ModelConfig& config, const Checkpoint& checkpoint, const TransformerOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->config = config;
  impl_->options = options;
  impl_->a.hidden = config.hidden_size;
  impl_->a.eps = static_cast<float>(config.rms_norm_eps);
  check_entries(config);
  impl_->weights = load_weights(config, checkpoint, options.weights, options.arithmetic);
  impl_->note_layers();
  RopeFrequencies& rope = impl_->ropes[0];
  rope = rope_frequencies(config);
  if (config.is_latent()) {  // so that stored keys are rotated by plain angles
    impl_->a.rotated_scale = rope.magnitude * rope.magnitude;
    rope.magnitude = 1.0F;
  }
  if (config.two_rotations()) impl_->ropes[1] = own_rope_frequencies(config);
  impl_->rotation = cached_rotation(config, rope);
  impl_->embedding_scale = embedding_scale(config, options.weights);
  impl_->fingerprint = fingerprint_of(checkpoint);
}

Transformer::~Transformer() = default;
Transformer::Transformer(Transformer&&) noexcept = default;

const ModelConfig& Transformer::config() const { return impl_->config; }
const TransformerOptions& Transformer::options() const { return impl_->options; }
const LayerShape& Transformer::layer_shape(int64_t layer) const { return impl_->shapes[layer]; }
std::span<const RecurrentShape> Transformer::state_shapes() const { return impl_->states; }
KvCache Transformer::make_cache() const { return KvCache(impl_->shapes, impl_->states); }
std::vector<float> Transformer::output_projection(int64_t layer) const {
  return std::visit([&](const auto& kind) { return output_matrix(kind, impl_->config); },
                    impl_->weights.layers[impl_->holders[layer]].attention);
}
void Transformer::embed(std::span<const int32_t> tokens, float* rows) const {
  check_tokens(impl_->config, tokens);
  impl_->embed_rows(tokens, rows);
}
void Transformer::predict(const float* rows, int64_t count, float* logits) const {
  const ModelConfig& config = impl_->config;
  std::vector<float> normed(static_cast<size_t>(count * config.hidden_size));
  impl_->a.normalise(rows, impl_->weights.final_norm, normed.data(), count, config.hidden_size, config.hidden_size);
  impl_->predict(normed.data(), count, logits);
}
const RopeFrequencies& Transformer::rope(int64_t layer) const {
  const int64_t rotation = impl_->rotation_of(impl_->holders[layer]);
  return rotation == 0 ? impl_->rotation : impl_->ropes[rotation];
}
const std::string& Transformer::fingerprint() const { return impl_->fingerprint; }
int64_t Transformer::weight_bytes() const { return impl_->weights.matrix_bytes; }
int64_t Transformer::weight_numbers() const { return impl_->weights.matrix_numbers; }

std::span<const float> Transformer::forward(std::span<const SequencePass> batch) {
  impl_->check(batch);
  return impl_->forward(batch);
}

std::span<const float> Transformer::Impl::run(std::span<const SequencePass> batch) {
  const PacedStep paced(threads);
  a.rows = 0;
  for (const SequencePass& pass : batch) a.rows += static_cast<int64_t>(pass.tokens.size());

  for (const SequencePass& pass : batch) {
    if (pass.hooks != nullptr) pass.hooks->before_pass(*pass.cache, pass.tokens);
  }
  embed(batch);
  make_rotations(batch);
  if (std::ranges::any_of(batch, [&](const SequencePass& pass) { return last_layer(pass) + 1 < config.layers; })) {
    run_layers_with_exits(batch);
  } else {
    for (int64_t layer = 0; layer < config.layers; ++layer) run_layer(layer, batch);
  }
  for (const SequencePass& pass : batch) pass.cache->length = length_after(pass);

  return head(collect_wanted(batch));
}

}  // namespace kvarena
