#include "harness/cache/dequantizing_segment.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvarena {
namespace {

/// Codes are decoded to float32 whatever the layer's type is.
LayerShape float_shape(LayerShape shape) {
  shape.dtype = DType::f32;
  return shape;
}

/// Takes a transform that is undone last off the steps, for queries or outputs to be under it instead of each entry.
RowTransformPtr take_last_transform(std::vector<DequantOp>& steps) {
  if (steps.empty() || !std::holds_alternative<UndoTransform>(steps.back())) return nullptr;
  RowTransformPtr transform = std::get<UndoTransform>(steps.back()).transform;
  steps.pop_back();
  return transform;
}

}  // namespace

DequantizingSegment::DequantizingSegment(const LayerShape& shape, const QuantizedFormat& format,
                                         std::unique_ptr<CodecSideData> side_data, LedgerPtr ledger)
    : PackedSegment(shape),
      ledger_(std::move(ledger)),
      codes_(std::make_unique<QuantizedSegment>(float_shape(shape), format, ledger_)),
      side_data_(std::move(side_data)),
      positions_(shape.kv_heads, ledger_) {}

DequantizingSegment::DequantizingSegment(const DequantizingSegment& from, const LedgerPtr& ledger)
    : PackedSegment(from.shape()),
      ledger_(ledger),
      codes_(static_cast<QuantizedSegment*>(from.codes_->clone(ledger).release())),
      side_data_(from.side_data_->clone(ledger)),
      positions_(from.positions_, ledger) {}

EntryBlock front_of(const EntrySegment& tail, int64_t n) {
  const int64_t d = tail.shape().head_dim;
  EntryBlock block{.kv_heads = tail.shape().kv_heads, .count = n, .head_dim = d};
  for (int64_t h = 0; h < block.kv_heads; ++h) {
    std::vector<float> keys(static_cast<size_t>(tail.entries(h) * d));
    std::vector<float> values(keys.size());
    tail.read(h, keys.data(), values.data());
    keys.resize(static_cast<size_t>(n * d));
    values.resize(keys.size());
    require_finite(keys, "key", h);
    require_finite(values, "value", h);
    block.keys.insert(block.keys.end(), keys.begin(), keys.end());
    block.values.insert(block.values.end(), values.begin(), values.end());
    block.positions.push_back(tail.positions(h));
    block.positions.back().resize(static_cast<size_t>(n));
  }
  return block;
}

void DequantizingSegment::take(EntrySegment& tail, int64_t n) {
  const int64_t first = entries(0);
  const int64_t d = shape().head_dim;
  EntryBlock block = front_of(tail, n);
  positions_.append(block.positions);
  side_data_->prepare(first, block);

  const auto scratch_ledger = std::make_shared<MemoryLedger>();
  EntrySegment prepared(float_shape(shape()), scratch_ledger);
  std::vector<float> keys(block.keys.size());  // [n, kv_heads, head_dim]
  std::vector<float> values(block.values.size());
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(block.key(h, i), d, &keys[(i * shape().kv_heads + h) * d]);
      std::copy_n(block.value(h, i), d, &values[(i * shape().kv_heads + h) * d]);
    }
  }
  prepared.append(keys.data(), values.data(), n, shape().kv_heads * d, first);
  codes_->take(prepared, n);
  codes_->pack_values(codes_->unpacked_values());

  side_data_->complete(first, block, [&] {
    EntryBlock decoded = block;
    for (int64_t h = 0; h < shape().kv_heads; ++h) {
      codes_->read_range(h, first, n, decoded.key(h, 0), decoded.value(h, 0));
    }
    return decoded;
  });
  tail.drop_front(n);
}

void DequantizingSegment::plan(const LayerQueries& queries, AttentionPlan& to) const {
  codes_->plan(queries, to);
  AttentionItem& item = to.items.back();
  item.from = this;
  item.steps = side_data_->dequant_program(
      [this](int64_t kv_head, int64_t first, int64_t count) { return positions_.of(kv_head, first, count); });
  if (!item.key_transform) item.key_transform = take_last_transform(item.steps.keys);
  if (!item.value_transform) item.value_transform = take_last_transform(item.steps.values);
}

void DequantizingSegment::mark(const LedgerPtr& held) {
  codes_->mark(held);
  mark_ = Mark{.ledger = held, .side_data = side_data_->clone(held), .entries = entries(0)};
}

void DequantizingSegment::rewind() {
  codes_->rewind();
  Mark& mark = mark_.value();
  side_data_ = mark.ledger == ledger_ ? std::move(mark.side_data) : mark.side_data->clone(ledger_);
  positions_.truncate(mark.entries);
  mark_.reset();
  change_version();
}

void DequantizingSegment::unmark() {
  codes_->unmark();
  mark_.reset();
}

void DequantizingSegment::save(CacheWriter& to) const {
  codes_->save(to);
  positions_.save(to);
  dynamic_cast<const StorableSideData&>(*side_data_).save(to);
}

void DequantizingSegment::load(CacheReader& from) {
  codes_->load(from);
  if (codes_->unpacked_values() > 0) {
    CacheReader::damaged(fmt::format("{} values in 16 bits", codes_->unpacked_values()), "none");
  }
  positions_.load(from, entries(0));
  dynamic_cast<StorableSideData&>(*side_data_).load(from, entries(0));
  change_version();
}

int64_t DequantizingSegment::bytes() const {
  return codes_->bytes() + side_data_->bytes() + positions_.bytes() + (mark_ ? mark_->side_data->bytes() : 0);
}

std::unique_ptr<Segment> DequantizingSegment::clone(const LedgerPtr& ledger) const {
  return std::unique_ptr<Segment>(new DequantizingSegment(*this, ledger));
}

}  // namespace kvarena
