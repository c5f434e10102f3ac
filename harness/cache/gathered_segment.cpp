#include "harness/cache/gathered_segment.h"

#include <algorithm>

#include "harness/cache/run_attention.h"
#include "harness/core/error.h"

namespace kvarena {

using kernels::CellKind;
using kernels::Cells;

GatheredSegment::GatheredSegment(const LayerShape& shape, int64_t entries, LedgerPtr ledger)
    : shape_(shape), ledger_(std::move(ledger)) {
  const auto bytes = static_cast<size_t>(kernels::cell_bytes(entries, shape_.head_dim, shape_.dtype));
  for (int64_t head = 0; head < shape_.kv_heads; ++head) {
    Head& own = heads_.emplace_back(ledger_);
    own.keys.reserve(bytes);
    own.values.reserve(bytes);
    own.positions.reserve(static_cast<size_t>(entries));
  }
}

Cells GatheredSegment::cells(const Head& head, CellKind kind) const {
  const auto& memory = kind == CellKind::keys ? head.keys : head.values;
  return {
      .kind = kind, .dtype = shape_.dtype, .head_dim = shape_.head_dim, .data = const_cast<std::byte*>(memory.data())};
}

void GatheredSegment::add(int64_t kv_head, std::span<const int32_t> positions, const float* keys, const float* values) {
  Head& head = heads_[kv_head];
  const int64_t at = entries(kv_head), count = std::ssize(positions);
  const auto bytes = static_cast<size_t>(kernels::cell_bytes(at + count, shape_.head_dim, shape_.dtype));
  head.keys.resize(bytes);
  head.values.resize(bytes);
  kernels::store_rows(cells(head, CellKind::keys), at, count, keys, shape_.head_dim);
  kernels::store_rows(cells(head, CellKind::values), at, count, values, shape_.head_dim);
  head.positions.insert(head.positions.end(), positions.begin(), positions.end());
}

std::vector<int32_t> GatheredSegment::positions(int64_t kv_head) const {
  return {heads_[kv_head].positions.begin(), heads_[kv_head].positions.end()};
}

int64_t GatheredSegment::bytes() const {
  size_t total = 0;
  for (const Head& head : heads_) {
    total += head.keys.capacity() + head.values.capacity() + head.positions.capacity() * sizeof(int32_t);
  }
  return static_cast<int64_t>(total);
}

kernels::HeadRun GatheredSegment::run(int64_t kv_head) const {
  const Head& head = heads_[kv_head];
  return {.keys = head.keys.data(), .values = head.values.data(), .entries = entries(kv_head)};
}

std::vector<kernels::HeadRun> GatheredSegment::runs() const {
  std::vector<kernels::HeadRun> runs;
  for (int64_t h = 0; h < shape_.kv_heads; ++h) runs.push_back(run(h));
  return runs;
}

void GatheredSegment::attend(const LayerQueries& queries, bool causal, kernels::AttentionState& state) const {
  KVARENA_ASSERT(!causal, "picked entries are older than the queries");
  const auto of = [this](int64_t head) { return positions(head); };
  if (shape_.window > 0) return attend_window(shape_, runs(), of, queries, state);
  attend_runs(shape_, runs(), queries, causal, state);
}

void GatheredSegment::add_probabilities(const LayerQueries& queries, bool causal, const float* lse, float* sums,
                                      int64_t row_stride) const {
  KVARENA_ASSERT(!causal, "picked entries are older than the queries");
  const auto of = [this](int64_t head) { return positions(head); };
  if (shape_.window > 0) return add_window_probabilities(shape_, runs(), of, queries, lse, sums, row_stride);
  add_run_probabilities(shape_, runs(), queries, causal, lse, sums, row_stride);
}

void GatheredSegment::read(int64_t kv_head, float* keys, float* values) const {
  const Head& head = heads_[kv_head];
  if (keys != nullptr) kernels::load_rows(cells(head, CellKind::keys), 0, entries(kv_head), keys, shape_.head_dim);
  if (values != nullptr) {
    kernels::load_rows(cells(head, CellKind::values), 0, entries(kv_head), values, shape_.head_dim);
  }
}

std::unique_ptr<Segment> GatheredSegment::clone(const LedgerPtr& ledger) const {
  auto copy = std::make_unique<GatheredSegment>(shape_, 0, ledger);
  for (int64_t head = 0; head < shape_.kv_heads; ++head) {
    const Head& from = heads_[head];
    Head& to = copy->heads_[head];
    to.keys.assign(from.keys.begin(), from.keys.end());
    to.values.assign(from.values.begin(), from.values.end());
    to.positions.assign(from.positions.begin(), from.positions.end());
  }
  return copy;
}

ConcatView::ConcatView(int64_t head_dim, std::unique_ptr<Segment> own, std::vector<const Segment*> borrowed)
    : head_dim_(head_dim), own_(std::move(own)) {
  parts_.push_back(own_.get());
  parts_.insert(parts_.end(), borrowed.begin(), borrowed.end());
}

int64_t ConcatView::entries(int64_t kv_head) const {
  int64_t total = 0;
  for (const Segment* part : parts_) total += part->entries(kv_head);
  return total;
}

std::vector<int32_t> ConcatView::positions(int64_t kv_head) const {
  std::vector<int32_t> all;
  for (const Segment* part : parts_) {
    const std::vector<int32_t> more = part->positions(kv_head);
    all.insert(all.end(), more.begin(), more.end());
  }
  std::ranges::sort(all);
  return all;
}

void ConcatView::attend(const LayerQueries& queries, bool causal, kernels::AttentionState& state) const {
  KVARENA_ASSERT(!causal, "a view was chosen for queries that see all of it");
  for (const Segment* part : parts_) part->attend(queries, causal, state);
}

void ConcatView::add_probabilities(const LayerQueries& queries, bool causal, const float* lse, float* sums,
                                   int64_t row_stride) const {
  int64_t before = 0;
  for (const Segment* part : parts_) {
    part->add_probabilities(queries, causal, lse, sums + before, row_stride);
    before += part->entries(0);  // heads of a view hold the same number
  }
}

void ConcatView::read(int64_t kv_head, float* keys, float* values) const {
  for (const Segment* part : parts_) {
    part->read(kv_head, keys, values);
    const int64_t numbers = part->entries(kv_head) * head_dim_;
    if (keys != nullptr) keys += numbers;
    if (values != nullptr) values += numbers;
  }
}

std::unique_ptr<Segment> ConcatView::clone(const LedgerPtr& ledger) const {
  return std::make_unique<ConcatView>(head_dim_, own_->clone(ledger), std::vector(parts_.begin() + 1, parts_.end()));
}

}  // namespace kvarena
