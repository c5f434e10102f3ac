#include "harness/engine/draft/recorded_passes.h"

#include <algorithm>

#include "kernels/cells/cells.h"

namespace kvarena {
namespace {

/// Appends the newest `count` entries of `from`, bits unchanged: heads may hold differently many.
void append_newest(const EntrySegment& from, int64_t count, int64_t position, EntrySegment& to) {
  const LayerShape& shape = from.shape();
  const int64_t row = shape.kv_heads * shape.head_dim;
  std::vector<float> keys(static_cast<size_t>(count * row)), values(keys.size());
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    from.read_some(head, from.entries(head) - count, count, &keys[head * shape.head_dim],
                   &values[head * shape.head_dim], row);
  }
  to.append(keys.data(), values.data(), count, row, position);
}

template <class T>
int64_t vector_bytes(const T& list) {
  return static_cast<int64_t>(list.capacity() * sizeof(typename T::value_type));
}

}  // namespace

void RecordedPasses::before_pass(KvCache& cache, std::span<const int32_t> tokens) {
  if (tokens_.empty()) position_ = cache.length;
  begins_.push_back(std::ssize(tokens_));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ForwardingHooks::before_pass(cache, tokens);
}

void RecordedPasses::after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) {
  note(layer, cache, queries, lse);
  ForwardingHooks::after_attention(layer, cache, queries, lse);
}

void RecordedPasses::note(int64_t layer, const LayerCache& cache, const LayerQueries& queries, const float* lse) {
  const LayerShape& shape = cache.shape();
  if (layer == std::ssize(layers_)) layers_.emplace_back(shape, ledger_);
  Layer& own = layers_[layer];
  append_newest(cache.tail(), queries.q_len, queries.position, own.entries);
  for (int64_t t = 0; t < queries.q_len; ++t) {
    const float* q = queries.q + t * queries.q_stride;
    own.q.insert(own.q.end(), q, q + shape.q_heads * shape.head_dim);
  }
  own.lse.insert(own.lse.end(), lse, lse + queries.q_len * shape.q_heads);
  if (queries.hidden == nullptr) return;
  own.hidden.insert(own.hidden.end(), queries.hidden, queries.hidden + queries.q_len * hidden_size_);
}

void RecordedPasses::clear() {
  layers_.clear();
  tokens_.clear();
  begins_.clear();
}

void RecordedPasses::cut_newest(int64_t count) {
  const auto left = static_cast<size_t>(begins_.back() + count);
  for (Layer& layer : layers_) {
    const LayerShape& shape = layer.entries.shape();
    layer.entries.truncate(static_cast<int64_t>(left));
    layer.q.resize(left * static_cast<size_t>(shape.q_heads * shape.head_dim));
    layer.lse.resize(left * static_cast<size_t>(shape.q_heads));
    if (!layer.hidden.empty()) layer.hidden.resize(left * static_cast<size_t>(hidden_size_));
  }
  tokens_.resize(left);
}

LayerQueries RecordedPasses::queries_of(int64_t layer, int64_t first, int64_t count) const {
  const Layer& own = layers_[layer];
  const int64_t row = own.entries.shape().q_heads * own.entries.shape().head_dim;
  return {.q = own.q.data() + first * row,
          .q_len = count,
          .q_stride = row,
          .position = position_ + first,
          .hidden = own.hidden.empty() ? nullptr : own.hidden.data() + first * hidden_size_,
          .tokens = tokens_.data() + first};
}

RecordedPasses::Newest RecordedPasses::newest(int64_t layer, int64_t count) const {
  const int64_t first = begins_.back();
  return {.queries = queries_of(layer, first, count),
          .lse = layers_[layer].lse.data() + first * layers_[layer].entries.shape().q_heads};
}

void RecordedPasses::replay(KvCache& cache, int64_t count, AttentionHooks& hooks) const {
  for (size_t pass = 0; pass < begins_.size() && begins_[pass] < count; ++pass) {
    const int64_t first = begins_[pass];
    const int64_t end = pass + 1 < begins_.size() ? begins_[pass + 1] : std::ssize(tokens_);
    const int64_t tokens = std::min(end, count) - first;
    hooks.before_pass(cache, std::span(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(tokens)));
    for (int64_t layer = 0; layer < std::ssize(layers_); ++layer) {
      const Layer& own = layers_[layer];
      LayerCache& to = cache.layers[layer];
      to.tail().append_entries(own.entries, first, tokens);
      const LayerQueries queries = queries_of(layer, first, tokens);
      hooks.before_attention(layer, to, queries);
      hooks.after_attention(layer, to, queries, own.lse.data() + first * to.shape().q_heads);
    }
    cache.length += tokens;
  }
}

int64_t RecordedPasses::bytes_of(const KvCache& cache, int64_t tokens) const {
  const int64_t cells = (tokens + kernels::kCell - 1) / kernels::kCell * kernels::kCell;
  int64_t total = 0;
  for (const LayerCache& layer : cache.layers) {
    const LayerShape& shape = layer.shape();
    const int64_t numbers = shape.q_heads * (shape.head_dim + 1) + hidden_size_;
    total += cells * shape.entry_bytes() + 2 * tokens * numbers * static_cast<int64_t>(sizeof(float));  // as they grow
  }
  return total;
}

int64_t RecordedPasses::bytes() const {
  int64_t total = 0;
  for (const Layer& layer : layers_) {
    total += layer.entries.bytes() + vector_bytes(layer.q) + vector_bytes(layer.lse) + vector_bytes(layer.hidden);
  }
  return total;
}

}  // namespace kvarena
