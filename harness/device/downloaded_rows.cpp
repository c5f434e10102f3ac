#include "harness/device/downloaded_rows.h"

namespace kvarena::device {

/// Keys and values that stand in the rows of queries come with these.
DownloadedRows::Places DownloadedRows::places() const {
  const AttentionLayout& layout = shape_.attention;
  const bool everything = what_ == Download::everything;
  const int64_t rows = shape_.rows;
  const int64_t q = everything || layout.together ? rows * layout.q_stride : 0;
  const int64_t entries = q + (layout.together ? 0 : rows * layout.kv_stride);
  const int64_t lse = entries + (everything ? rows * shape_.q_heads : 0);
  const int64_t stream = everything ? rows * shape_.hidden_size : 0;
  return {.entries = q, .lse = entries, .hidden = lse, .residual = lse + stream, .end = lse + 2 * stream};
}

void DownloadedRows::make_room(Download what, const Shape& shape, int64_t& moves) {
  what_ = what;
  shape_ = shape;
  by_layer_ = false;
  while (std::ssize(layers_queued_) < shape.layers) layers_queued_.push_back(std::make_unique<kernels::CudaMark>());
  if (what == Download::nothing) return;
  if (pinned_.at_least(shape.layers * places().end)) ++moves;
}

float* DownloadedRows::memory(int64_t layer) const {
  return pinned_.data() + (layer - shape_.first_layer) * places().end;
}

void DownloadedRows::bring_inputs(int64_t layer, const QkvRows& from, const float* hidden, kernels::CudaStream stream) {
  if (what_ == Download::nothing) return;
  const Places at = places();
  float* const to = memory(layer);
  const auto copy = [&](int64_t begin, int64_t end, const float* rows) {
    if (end > begin) kernels::cuda_download(to + begin, rows, (end - begin) * 4, stream);
  };
  copy(0, at.entries, from.q);
  copy(at.entries, at.lse, from.keys);
  copy(at.hidden, at.residual, hidden);
}

void DownloadedRows::bring_denominators(int64_t layer, const float* lse, kernels::CudaStream stream) {
  const Places at = places();
  if (what_ != Download::everything) return;
  kernels::cuda_download(memory(layer) + at.lse, lse, (at.hidden - at.lse) * 4, stream);
}

void DownloadedRows::bring_residual(int64_t layer, const float* residual, kernels::CudaStream stream) {
  const Places at = places();
  if (what_ != Download::everything) return;
  kernels::cuda_download(memory(layer) + at.residual, residual, (at.end - at.residual) * 4, stream);
}

void DownloadedRows::queued(int64_t layer, kernels::CudaStream stream) {
  if (what_ == Download::nothing) return;
  layers_queued_[layer - shape_.first_layer]->record(stream);
  by_layer_ = true;
}

void DownloadedRows::queued(kernels::CudaStream stream) { all_queued_.record(stream); }

void DownloadedRows::wait(int64_t layer) const {
  by_layer_ ? layers_queued_[layer - shape_.first_layer]->wait() : all_queued_.wait();
}

LayerRows DownloadedRows::layer(int64_t layer, int64_t first) const {
  const AttentionLayout& layout = shape_.attention;
  const Places at = places();
  const float* const rows = memory(layer);
  const float* const keys = layout.together ? rows + layout.keys : rows + at.entries;
  const bool everything = what_ == Download::everything;
  const QkvRows attention{.q = everything ? rows : nullptr,
                          .q_stride = layout.q_stride,
                          .keys = keys,
                          .values = keys + layout.values_behind_keys,
                          .kv_stride = layout.kv_stride};
  LayerRows brought{.attention = attention.from(first)};
  if (!everything) return brought;
  brought.lse = rows + at.lse + first * shape_.q_heads;
  brought.hidden = rows + at.hidden + first * shape_.hidden_size;
  brought.residual = rows + at.residual + first * shape_.hidden_size;
  return brought;
}

}  // namespace kvarena::device
