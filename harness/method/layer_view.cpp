#include "harness/method/layer_view.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "harness/core/error.h"

namespace kvarena {
namespace {

at::Tensor as_tensor(const std::vector<float>& data, at::IntArrayRef sizes) {
  return at::from_blob(const_cast<float*>(data.data()), sizes, at::kFloat).clone();
}

}  // namespace

LayerView::LayerView(const LayerContext& layer, const LayerObservations* seen)
    : layer_(&layer), seen_(seen), shape_(layer.cache.shape()), n_(layer.cache.tail().entries(0)) {
  for (int64_t head = 1; head < shape_.kv_heads; ++head) {
    KVARENA_ASSERT(layer.cache.tail().entries(head) == n_, fmt::format("kv head {} holds {} entries, head 0 holds {}",
                                                                       head, layer.cache.tail().entries(head), n_));
  }
}

at::Tensor LayerView::keys() const {
  at::Tensor keys = at::empty({shape_.kv_heads, n_, shape_.head_dim}, at::kFloat);
  for (int64_t head = 0; head < shape_.kv_heads; ++head) {
    layer_->cache.tail().read(head, keys[head].data_ptr<float>(), nullptr);
  }
  return keys;
}

at::Tensor LayerView::values() const {
  at::Tensor values = at::empty({shape_.kv_heads, n_, shape_.head_dim}, at::kFloat);
  for (int64_t head = 0; head < shape_.kv_heads; ++head) {
    layer_->cache.tail().read(head, nullptr, values[head].data_ptr<float>());
  }
  return values;
}

at::Tensor LayerView::positions() const {
  at::Tensor positions = at::empty({shape_.kv_heads, n_}, at::kLong);
  for (int64_t head = 0; head < shape_.kv_heads; ++head) {
    const std::vector<int32_t> list = layer_->cache.tail().positions(head);
    std::copy(list.begin(), list.end(), positions[head].data_ptr<int64_t>());
  }
  return positions;
}

at::Tensor LayerView::prompt_attention() const {
  KVARENA_ASSERT(seen_ != nullptr && !seen_->prompt_attention.empty(), "prompt attention was not declared in needs()");
  return as_tensor(seen_->prompt_attention, {shape_.q_heads, n_});
}

at::Tensor LayerView::window_attention(int64_t w) const {
  KVARENA_ASSERT(seen_ != nullptr && seen_->window >= std::min(w, n_),
                 fmt::format("a window of {} queries was not declared in needs()", w));
  const int64_t rows = std::min(w, seen_->window);
  const int64_t skipped = seen_->window - rows;
  at::Tensor sums = at::zeros({shape_.q_heads, n_}, at::kFloat);
  const int64_t row = shape_.q_heads * shape_.head_dim;
  const LayerQueries queries{
      .q = seen_->window_queries.data() + skipped * row, .q_len = rows, .q_stride = row, .position = n_ - rows};
  layer_->cache.tail().add_probabilities(queries, /*causal=*/true, seen_->window_lse.data() + skipped * shape_.q_heads,
                                         sums.data_ptr<float>(), n_);
  return sums;
}

at::Tensor LayerView::accumulated_attention() const {
  EntrySegment& tail = layer_->cache.tail();
  KVARENA_ASSERT(tail.has_scores(), "step attention was not declared in needs()");
  at::Tensor scores = at::empty({shape_.kv_heads, n_}, at::kFloat);
  for (int64_t head = 0; head < shape_.kv_heads; ++head) {
    const std::span<const float> row = tail.scores(head);
    std::copy(row.begin(), row.end(), scores[head].data_ptr<float>());
  }
  return scores;
}

at::Tensor LayerView::hidden() const {
  KVARENA_ASSERT(seen_ != nullptr && !seen_->hidden.empty(), "hidden states were not declared in needs()");
  return as_tensor(seen_->hidden, {n_, static_cast<int64_t>(seen_->hidden.size()) / n_});
}

at::Tensor LayerView::group_mean(const at::Tensor& per_query_head) const {
  return per_query_head.view({shape_.kv_heads, shape_.group(), n_}).mean(1);
}

at::Tensor LayerView::group_sum(const at::Tensor& per_query_head) const {
  return per_query_head.view({shape_.kv_heads, shape_.group(), n_}).sum(1);
}

}  // namespace kvarena
