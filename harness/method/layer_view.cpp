#include "harness/method/layer_view.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "harness/cache/attend_plan.h"
#include "harness/core/error.h"

namespace kvarena {
namespace {

at::Tensor as_tensor(const std::vector<float>& data, at::IntArrayRef sizes) {
  return at::from_blob(const_cast<float*>(data.data()), sizes, at::kFloat).clone();
}

}  // namespace

LayerView::LayerView(const LayerContext& layer, const LayerObservations* seen, int64_t first_head, int64_t kv_heads)
    : layer_(&layer),
      seen_(seen),
      shape_(layer.cache.shape()),
      first_head_(first_head),
      kv_heads_(kv_heads),
      all_(layer.cache.tail().entries(first_head)),
      n_(all_) {}

LayerView::LayerView(const LayerContext& layer, const LayerObservations* seen)
    : LayerView(layer, seen, 0, layer.cache.shape().kv_heads) {
  for (int64_t head = 1; head < kv_heads_; ++head) {
    KVARENA_ASSERT(tail().entries(head) == n_,
                   fmt::format("kv head {} holds {} entries, head 0 holds {}", head, tail().entries(head), n_));
  }
}

LayerView::LayerView(const LayerContext& layer, const LayerObservations* seen, int64_t kv_head)
    : LayerView(layer, seen, kv_head, 1) {}

at::Tensor LayerView::keys() const {
  at::Tensor keys = at::empty({kv_heads_, all_, shape_.head_dim}, at::kFloat);
  for (int64_t head = 0; head < kv_heads_; ++head) {
    tail().read(first_head_ + head, keys[head].data_ptr<float>(), nullptr);
  }
  return cut(keys);
}

at::Tensor LayerView::values() const {
  at::Tensor values = at::empty({kv_heads_, all_, shape_.head_dim}, at::kFloat);
  for (int64_t head = 0; head < kv_heads_; ++head) {
    tail().read(first_head_ + head, nullptr, values[head].data_ptr<float>());
  }
  return cut(values);
}

at::Tensor LayerView::positions() const {
  at::Tensor positions = at::empty({kv_heads_, all_}, at::kLong);
  for (int64_t head = 0; head < kv_heads_; ++head) {
    const std::vector<int32_t> list = tail().positions(first_head_ + head);
    std::copy(list.begin(), list.end(), positions[head].data_ptr<int64_t>());
  }
  return cut(positions);
}

LayerView LayerView::part(std::vector<std::vector<int32_t>> entries) const {
  KVARENA_ASSERT(!part_ && static_cast<int64_t>(entries.size()) == kv_heads_, "a part is a list for each head");
  LayerView view = *this;
  view.n_ = static_cast<int64_t>(entries.front().size());
  view.part_ = std::make_shared<const std::vector<std::vector<int32_t>>>(std::move(entries));
  return view;
}

LayerView LayerView::under(double share) const {
  LayerView view = *this;
  view.share_ = share;
  return view;
}

at::Tensor LayerView::cut(const at::Tensor& all) const {
  if (!part_) return all;
  const int64_t rows = all.size(0) / kv_heads_;  // a head's: 1, or its group
  std::vector<at::Tensor> heads;
  for (int64_t row = 0; row < all.size(0); ++row) {
    const std::vector<int32_t>& list = (*part_)[row / rows];
    heads.push_back(all[row].index_select(0, at::from_blob(const_cast<int32_t*>(list.data()), {n_}, at::kInt)));
  }
  return at::stack(heads);
}

at::Tensor LayerView::shown(const at::Tensor& per_query_head) const {
  return per_query_head.narrow(0, first_head_ * group(), q_heads());
}

at::Tensor LayerView::prompt_attention() const {
  KVARENA_ASSERT(seen_ != nullptr && !seen_->prompt_attention.empty(), "prompt attention was not declared in needs()");
  return cut(shown(as_tensor(seen_->prompt_attention, {shape_.q_heads, all_})));
}

at::Tensor LayerView::queries(int64_t w) const {
  KVARENA_ASSERT(seen_ != nullptr && (decoding() || part_ || seen_->window >= std::min(w, n_)),
                 fmt::format("a window of {} queries was not declared in needs()", w));
  const int64_t rows = std::min({w, seen_->window, n_});
  at::Tensor index = at::arange(all_ - rows, all_, at::kLong);
  if (part_) {
    const std::vector<int32_t>& list = part_->front();
    index = at::from_blob(const_cast<int32_t*>(list.data()) + n_ - rows, {rows}, at::kInt).to(at::kLong);
  }
  return at::from_blob(const_cast<float*>(seen_->window_queries.data()), {seen_->window, shape_.q_heads, head_dim()},
                       at::kFloat)
      .index_select(0, index - (all_ - seen_->window))
      .narrow(1, first_head_ * group(), q_heads())
      .transpose(0, 1);
}

at::Tensor LayerView::softmax(const at::Tensor& scores) const {
  if (shape_.sinks == nullptr) return scores.softmax(-1);
  const at::Tensor sinks = at::from_blob(const_cast<float*>(shape_.sinks) + first_head_ * group(), {q_heads(), 1, 1});
  return at::cat({scores, sinks.expand({q_heads(), scores.size(1), 1})}, -1).softmax(-1).narrow(-1, 0, scores.size(2));
}

at::Tensor LayerView::window_attention(int64_t w, bool times_seen) const {
  if (part_ || decoding() || times_seen) {
    at::Tensor sums = at::zeros({q_heads(), n_}, at::kFloat);
    for_each_query_block(w, [&](const at::Tensor& scores, int64_t /*first*/) {
      at::Tensor rows = softmax(scores);
      if (times_seen) rows = rows * (scores.isfinite().sum(-1, /*keepdim=*/true) - 1);
      sums.add_(rows.sum(1));
    });
    return sums;
  }
  KVARENA_ASSERT(seen_->window >= std::min(w, n_),
                 fmt::format("a window of {} queries was not declared in needs()", w));
  const int64_t rows = std::min(w, seen_->window);
  const int64_t skipped = seen_->window - rows;
  at::Tensor sums = at::zeros({shape_.q_heads, n_}, at::kFloat);
  const int64_t row = shape_.q_heads * shape_.head_dim;
  const LayerQueries queries{
      .q = seen_->window_queries.data() + skipped * row, .q_len = rows, .q_stride = row, .position = n_ - rows};
  add_probabilities(tail().plan_newest(queries), seen_->window_lse.data() + skipped * shape_.q_heads,
                    sums.data_ptr<float>(), n_);
  return shown(sums);
}

void LayerView::for_each_query_block(int64_t w, const std::function<void(const at::Tensor&, int64_t)>& use) const {
  const at::Tensor queries = this->queries(w);  // [q_heads, rows, head_dim]
  const int64_t rows = queries.size(1);
  const at::Tensor keys = this->keys().transpose(1, 2).contiguous();  // [kv_heads, head_dim, n]
  const at::Tensor entry = at::arange(n_, at::kLong);
  constexpr int64_t kBlockFloats = int64_t{4} << 20;
  const int64_t block = std::max<int64_t>(1, kBlockFloats / (q_heads() * n_));
  for (int64_t done = 0; done < rows; done += block) {
    const int64_t count = std::min(block, rows - done);
    const int64_t first = n_ - rows + done;
    const at::Tensor q = queries.narrow(1, done, count).reshape({kv_heads_, -1, head_dim()});
    at::Tensor scores = q.matmul(keys).mul_(attention_scale(shape_)).view({q_heads(), count, n_});
    const at::Tensor own = at::arange(first, first + count, at::kLong).unsqueeze(1);  // [count, 1]
    at::Tensor unseen = entry.gt(own);
    if (shape_.window > 0) {
      unseen =
          unseen.logical_or_(entry.lt(shape_.chunked ? own - own.remainder(shape_.window) : own - shape_.window + 1));
    }
    scores.masked_fill_(unseen, -std::numeric_limits<float>::infinity());
    use(scores, first);
  }
}

at::Tensor LayerView::entry_scores(int64_t column) const {
  const int64_t width = tail().score_width();
  KVARENA_ASSERT(column < width, fmt::format("column {} of {} remembered", column, width));
  at::Tensor numbers = at::empty({kv_heads_, all_}, at::kFloat);
  for (int64_t head = 0; head < kv_heads_; ++head) {
    const std::span<const float> rows = tail().entry_scores(first_head_ + head);
    auto* const out = numbers[head].data_ptr<float>();
    for (int64_t i = 0; i < all_; ++i) out[i] = rows[i * width + column];
  }
  return cut(numbers);
}

at::Tensor LayerView::hidden() const {
  KVARENA_ASSERT(seen_ != nullptr && !seen_->hidden.empty(), "hidden states were not declared in needs()");
  return token_rows(seen_->hidden);
}

at::Tensor LayerView::residual() const {
  KVARENA_ASSERT(seen_ != nullptr && !seen_->residual.empty(), "this layer was not tapped in needs()");
  return token_rows(seen_->residual);
}

at::Tensor LayerView::token_rows(const std::vector<float>& rows) const {
  const at::Tensor all = as_tensor(rows, {all_, static_cast<int64_t>(rows.size()) / all_});
  if (!part_) return all;
  const std::vector<int32_t>& list = part_->front();
  return all.index_select(0, at::from_blob(const_cast<int32_t*>(list.data()), {n_}, at::kInt));
}

at::Tensor LayerView::output_projection() const {
  KVARENA_ASSERT(seen_ != nullptr && seen_->output_projection, "the output projection was not declared in needs()");
  const std::vector<float> weights = seen_->output_projection();  // [hidden_size, q_heads * head_dim]
  const int64_t width = shape_.q_heads * shape_.head_dim;
  const at::Tensor all = as_tensor(weights, {static_cast<int64_t>(weights.size()) / width, shape_.q_heads, head_dim()});
  return shown(all.permute({1, 2, 0}));
}

at::Tensor LayerView::future_attention() const {
  KVARENA_ASSERT(seen_ != nullptr && !seen_->future_attention.empty(), "the future was not declared in needs()");
  return cut(shown(as_tensor(seen_->future_attention, {shape_.q_heads, all_})));
}

const QueryMoments& LayerView::query_moments(int64_t left_out) const {
  KVARENA_ASSERT(seen_ != nullptr, "query moments are known of the prompt alone");
  for (const QueryMoments& moments : seen_->query_moments) {
    if (moments.left_out == left_out) return moments;
  }
  throw InternalError(fmt::format("query moments without the first {} were not declared in needs()", left_out));
}

const ReconstructionScores& LayerView::reconstruction(const Reconstruction& what) const {
  KVARENA_ASSERT(seen_ != nullptr, "reconstructions are known of the prompt alone");
  for (const ReconstructionScores& scores : seen_->reconstructions) {
    if (scores.of == what) return scores;
  }
  throw InternalError("the reconstruction was not declared in needs()");
}

at::Tensor LayerView::reconstruction_scores(const Reconstruction& what) const {
  return at::from_blob(const_cast<float*>(reconstruction(what).scores.data()), {kv_heads(), group(), n()});
}

at::Tensor LayerView::prompt_statistic(const PromptStatistic& what) const {
  KVARENA_ASSERT(seen_ != nullptr, "statistics are known of the prompt alone");
  for (const GatheredStatistic& gathered : seen_->statistics) {
    if (gathered.id != what.id()) continue;
    const at::Tensor sums = as_tensor(gathered.sums, {shape_.kv_heads, gathered.width, all_}).transpose(1, 2);
    return cut(sums.narrow(0, first_head_, kv_heads_));
  }
  throw InternalError(fmt::format("statistic \"{}\" was not declared in needs()", what.id()));
}

const ModelFacts& LayerView::model() const {
  KVARENA_ASSERT(layer_->model != nullptr, "the layer's context says nothing about the model");
  return *layer_->model;
}

at::Tensor LayerView::group_reduce(const at::Tensor& per_query_head, const std::string& by) const {
  const at::Tensor groups = per_query_head.view({kv_heads_, group(), -1});
  return by == "max" ? groups.amax(1) : by == "sum" ? groups.sum(1) : groups.mean(1);
}

std::span<const int32_t> LayerView::tokens() const {
  KVARENA_ASSERT(static_cast<int64_t>(layer_->prompt.size()) == n_,
                 fmt::format("{} prompt tokens for {} entries", layer_->prompt.size(), n_));
  return layer_->prompt;
}

at::Tensor LayerView::group_mean(const at::Tensor& per_query_head) const {
  return per_query_head.view({kv_heads_, group(), n_}).mean(1);
}

at::Tensor LayerView::group_sum(const at::Tensor& per_query_head) const {
  return per_query_head.view({kv_heads_, group(), n_}).sum(1);
}

}  // namespace kvarena
