#include "harness/cache/gathered_segment.h"

#include <algorithm>

namespace kvarena {

using kernels::CellKind;
using kernels::Cells;

GatheredSegment::GatheredSegment(const LayerShape& shape, int64_t entries, LedgerPtr ledger)
    : Segment(shape), ledger_(std::move(ledger)) {
  const auto bytes = static_cast<size_t>(kernels::cell_bytes(entries, shape.head_dim, shape.dtype));
  for (int64_t head = 0; head < shape.kv_heads; ++head) {
    Head& own = heads_.emplace_back(ledger_);
    own.keys.reserve(bytes);
    own.values.reserve(bytes);
    own.positions.reserve(static_cast<size_t>(entries));
  }
}

Cells GatheredSegment::cells(const Head& head, CellKind kind) const {
  const auto& memory = kind == CellKind::keys ? head.keys : head.values;
  return {.kind = kind,
          .dtype = shape().dtype,
          .head_dim = shape().head_dim,
          .data = const_cast<std::byte*>(memory.data())};
}

void GatheredSegment::add(int64_t kv_head, std::span<const int32_t> positions, const float* keys, const float* values) {
  Head& head = heads_[kv_head];
  const int64_t at = entries(kv_head), count = std::ssize(positions);
  const auto bytes = static_cast<size_t>(kernels::cell_bytes(at + count, shape().head_dim, shape().dtype));
  head.keys.resize(bytes);
  head.values.resize(bytes);
  kernels::store_rows(cells(head, CellKind::keys), at, count, keys, shape().head_dim);
  kernels::store_rows(cells(head, CellKind::values), at, count, values, shape().head_dim);
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

void GatheredSegment::plan(const LayerQueries& /*queries*/, AttentionPlan& to) const {
  AttentionItem& item = to.add(*this);
  item.dtype = shape().dtype;
  for (int64_t h = 0; h < shape().kv_heads; ++h) item.runs.push_back(run(h));
  item.sees = in_window_of(shape());
}

std::unique_ptr<Segment> GatheredSegment::clone(const LedgerPtr& ledger) const {
  auto copy = std::make_unique<GatheredSegment>(shape(), 0, ledger);
  for (int64_t head = 0; head < shape().kv_heads; ++head) {
    const Head& from = heads_[head];
    Head& to = copy->heads_[head];
    to.keys.assign(from.keys.begin(), from.keys.end());
    to.values.assign(from.values.begin(), from.values.end());
    to.positions.assign(from.positions.begin(), from.positions.end());
  }
  return copy;
}

ConcatView::ConcatView(std::unique_ptr<Segment> own, const std::vector<const Segment*>& borrowed,
                       const EntrySegment& tail)
    : Segment(own->shape()), tail_(&tail) {
  add(std::move(own));
  parts_.insert(parts_.end(), borrowed.begin(), borrowed.end());
  parts_.push_back(&tail);
}

ConcatView::ConcatView(std::unique_ptr<Segment> first, std::unique_ptr<Segment> second) : Segment(first->shape()) {
  add(std::move(first));
  add(std::move(second));
}

void ConcatView::add(std::unique_ptr<Segment> own) {
  parts_.push_back(own.get());
  own_.push_back(std::move(own));
}

int64_t ConcatView::bytes() const {
  int64_t total = 0;
  for (const auto& own : own_) total += own->bytes();
  return total;
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

void ConcatView::plan(const LayerQueries& queries, AttentionPlan& to) const {
  for (const Segment* part : parts_) {
    if (part != tail_) part->plan(queries, to);
  }
  if (tail_ != nullptr) tail_->plan_newest(queries, to, /*window=*/0);
}

std::unique_ptr<Segment> ConcatView::clone(const LedgerPtr& ledger) const {
  std::unique_ptr<ConcatView> copy(new ConcatView(shape()));
  for (const auto& own : own_) copy->add(own->clone(ledger));
  copy->parts_.insert(copy->parts_.end(), parts_.begin() + std::ssize(own_), parts_.end());
  copy->tail_ = tail_;
  return copy;
}

}  // namespace kvarena
