#include "harness/device/device_offload.h"

#include <algorithm>

#include "harness/core/error.h"
#include "harness/model/attention_projections.h"

namespace kvarena::device {
namespace {

HookReach reach_of(const SequencePass& pass) {
  return pass.hooks == nullptr ? HookReach::nothing : pass.hooks->reach();
}

/// So much of what is free caches may take: passes need memory too.
constexpr double kCacheShare = 0.85;

}  // namespace

DeviceOffload::DeviceOffload(DeviceModel model, int64_t cache_bytes)
    : model_(std::move(model)), shapes_(model_.shapes()) {
  const auto free = static_cast<int64_t>(kCacheShare * static_cast<double>(kernels::cuda_free_bytes()));
  twins_ = std::make_shared<CacheTwins>(cache_bytes > 0 ? cache_bytes : free);
}

bool DeviceOffload::takes(const SequencePass& pass) const {
  return pass.exit_after == 0 && pass.parents.empty() && reach_of(pass) != HookReach::attention &&
         DeviceCache::cannot_hold(shapes_, *pass.cache).empty();
}

std::span<const float> DeviceOffload::forward(std::span<const SequencePass> batch) {
  try {
    const DeviceLogits logits = start(batch);
    const std::span<const float> rows = model_.download(logits);
    model_.synchronize();
    finish(batch);
    return rows;
  } catch (const UserError&) {
    throw;
  } catch (const std::runtime_error& error) {  // of CUDA
    for (const SequencePass& pass : batch) pass.cache->twin.reset();
    fail({.place = "the device",
          .found = error.what(),
          .expected = "a pass that ends",
          .action = "smaller batches and shorter prompts take less of its memory; \"cpu\" is always there"});
  }
}

DeviceLogits DeviceOffload::start(std::span<const SequencePass> batch) {
  std::vector<KvCache*> hosts;
  std::vector<int64_t> tokens;
  Bring bring = Bring::entries;
  for (const SequencePass& pass : batch) {
    hosts.push_back(pass.cache);
    tokens.push_back(static_cast<int64_t>(pass.tokens.size()));
    if (reach_of(pass) == HookReach::rows) bring = Bring::everything;
  }
  caches_ = twins_->of(model_, hosts, tokens);
  std::vector<DevicePass> passes;
  for (size_t i = 0; i < batch.size(); ++i) {
    passes.push_back({.tokens = batch[i].tokens, .cache = caches_[i], .logits = batch[i].logits});
  }
  return model_.forward(passes, bring);
}

/// What the device computed goes into the host's caches and to those who look at it, in the order of a pass.
void DeviceOffload::finish(std::span<const SequencePass> batch) {
  for (const SequencePass& pass : batch) {
    if (reach_of(pass) == HookReach::rows) pass.hooks->before_pass(*pass.cache, pass.tokens);
  }
  for (int64_t layer = 0; layer < std::ssize(shapes_); ++layer) {
    const LayerRows rows = model_.brought(layer);
    const int64_t stride = rows.attention.kv_stride;
    int64_t first = 0;
    for (size_t i = 0; i < batch.size(); ++i) {
      const SequencePass& pass = batch[i];
      const auto count = static_cast<int64_t>(pass.tokens.size());
      pass.cache->layers[layer].append(rows.attention.keys + first * stride, rows.attention.values + first * stride,
                                       count, stride, pass.cache->length);
      if (reach_of(pass) == HookReach::rows) show(layer, i, pass, rows, first);
      first += count;
    }
  }
  for (const SequencePass& pass : batch) {
    pass.cache->length += static_cast<int64_t>(pass.tokens.size());
    CacheTwins::appended(*pass.cache);
    tokens_ += static_cast<int64_t>(pass.tokens.size());
  }
}

void DeviceOffload::show(int64_t layer, size_t place, const SequencePass& pass, const LayerRows& rows,
                         int64_t first_row) {
  const LayerShape& shape = shapes_[layer];
  LayerCache& cache = pass.cache->layers[layer];
  const int64_t hidden_size = model_.config().hidden_size;
  const int64_t q_stride = rows.attention.q_stride;
  const float* q = rows.attention.q + first_row * q_stride;
  if (const float factor = model_.query_factor(); factor != 1) {
    queries_.assign(q, q + std::ssize(pass.tokens) * q_stride);
    for (float& number : queries_) number *= factor;
    q = queries_.data();
  }
  const LayerQueries queries{.q = q,
                             .q_len = std::ssize(pass.tokens),
                             .q_stride = q_stride,
                             .position = pass.cache->length,
                             .hidden = pass.hooks->wants_hidden() ? rows.hidden + first_row * hidden_size : nullptr,
                             .tokens = pass.tokens.data()};
  pass.hooks->before_attention(layer, cache, queries);
  const float* lse = rows.lse + first_row * shape.q_heads;
  if (kernels::AttentionReader* reader = pass.hooks->reader(layer, cache, queries)) {
    if (const kernels::ProbabilitySums sums = reader->only_sums(); sums.data != nullptr) {
      sums_.add(*caches_[place], {.layer = layer, .count = queries.q_len, .q = q, .q_stride = q_stride, .lse = lse},
                sums, model_.stream());
    } else {
      read(*reader, cache, queries);
    }
  }
  pass.hooks->after_attention(layer, cache, queries, lse);
  pass.hooks->after_layer(layer, rows.residual + first_row * hidden_size, queries.q_len, hidden_size);
}

void DeviceOffload::read(kernels::AttentionReader& reader, const LayerCache& cache, const LayerQueries& queries) {
  const LayerShape& shape = cache.shape();
  const int64_t q_rows = queries.q_len * shape.q_heads;
  attended_.resize(static_cast<size_t>(q_rows * shape.head_dim));
  running_.resize(static_cast<size_t>(2 * q_rows));
  kernels::AttentionState state{.out = attended_.data(), .max = running_.data(), .sum = running_.data() + q_rows};
  kernels::init_attention(state, queries.q_len, shape.q_heads, shape.head_dim);
  cache.attend(queries, state, &reader);
}

}  // namespace kvarena::device
