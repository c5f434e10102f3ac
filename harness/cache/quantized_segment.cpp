#include "harness/cache/quantized_segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "harness/core/error.h"
#include "kernels/cells/cells.h"

namespace kvarena {
namespace {

using kernels::CellKind;

/// Grows a buffer that is about to be written to exactly `bytes`, or by 1/64 where it grows step by step, so that it is
/// seldom moved.
void grow(Buffer& buffer, const LedgerPtr& ledger, int64_t bytes) {
  const int64_t held = buffer.bytes();
  buffer.resize(ledger, bytes <= held ? held : std::max(bytes, held + held / 64 / 64 * 64));
}

}  // namespace

QuantizedSegment::QuantizedSegment(const LayerShape& shape, const QuantizedFormat& format, LedgerPtr ledger)
    : PackedSegment(shape),
      format_(format),
      ledger_(std::move(ledger)),
      key_levels_(format.key_levels.begin(), format.key_levels.end(), LedgerAllocator<float>(ledger_)),
      value_levels_(format.value_levels.begin(), format.value_levels.end(), LedgerAllocator<float>(ledger_)) {
  if (!key_levels_.empty()) format_.keys.codebook = key_levels_.data();
  if (!value_levels_.empty()) format_.values.codebook = value_levels_.data();
  for (int64_t head = 0; head < shape.kv_heads; ++head) heads_.emplace_back(ledger_);
}

QuantizedSegment::SideBytes QuantizedSegment::bytes_of(CellKind kind, int64_t entries) const {
  const kernels::QuantFormat& format = kind == CellKind::keys ? format_.keys : format_.values;
  constexpr int64_t kDword = sizeof(uint32_t);
  const int64_t meta = kernels::meta_size(format) * kernels::packed_meta_count(kind, entries, shape().head_dim, format);
  return {.codes = kDword * kernels::packed_code_dwords(entries, shape().head_dim, format.bits),
          .scale = kernels::stores_scale(format) ? meta : 0,
          .zero = kernels::stores_zero(format) ? meta : 0};
}

void QuantizedSegment::reserve(Side& side, CellKind kind, int64_t entries) {
  const SideBytes bytes = bytes_of(kind, entries);
  grow(side.codes, ledger_, bytes.codes);
  if (bytes.scale > 0) grow(side.scale, ledger_, bytes.scale);
  if (bytes.zero > 0) grow(side.zero, ledger_, bytes.zero);
}

kernels::PackedEntries QuantizedSegment::view(const Side& side, CellKind kind) const {
  // Kernels that only read take the same struct.
  const auto pointer = [](const Buffer& buffer) { return const_cast<std::byte*>(buffer.data()); };
  return {.kind = kind,
          .format = kind == CellKind::keys ? format_.keys : format_.values,
          .head_dim = shape().head_dim,
          .codes = reinterpret_cast<uint32_t*>(pointer(side.codes)),
          .scale = reinterpret_cast<uint16_t*>(pointer(side.scale)),
          .zero = reinterpret_cast<uint16_t*>(pointer(side.zero)),
          .exact = shape().dtype == kernels::DType::f32};  // who asks for f32 entries wants f32 attention
}

kernels::PackedEntries QuantizedSegment::packed(int64_t kv_head, CellKind kind) const {
  const Head& head = heads_[kv_head];
  return view(kind == CellKind::keys ? head.keys : head.values, kind);
}

kernels::Cells QuantizedSegment::recent(const Head& head) const {
  return {.kind = CellKind::values,
          .dtype = shape().dtype,
          .head_dim = shape().head_dim,
          .data = const_cast<std::byte*>(head.recent_values.data())};
}

void QuantizedSegment::take_positions(const EntrySegment& tail, int64_t n) {
  const std::vector<int32_t> front = tail.positions(0);
  if (entries_ == 0) first_position_ = front.front();
  const bool follows = !tail.ragged() && front.front() == first_position_ + entries_;
  if (contiguous_ && follows) return;
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    auto& list = heads_[h].positions;
    if (contiguous_) {
      list.resize(static_cast<size_t>(entries_));
      std::iota(list.begin(), list.end(), static_cast<int32_t>(first_position_));
    }
    const std::vector<int32_t> taken = tail.positions(h);
    list.insert(list.end(), taken.begin(), taken.begin() + n);
  }
  contiguous_ = false;
}

void QuantizedSegment::take(EntrySegment& tail, int64_t n) {
  take_positions(tail, n);
  const int64_t d = shape().head_dim;
  const int64_t residual = unpacked_values();
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    Head& head = heads_[h];
    std::vector<float> keys(static_cast<size_t>(tail.entries(h) * d));
    std::vector<float> values(keys.size());
    tail.read(h, keys.data(), values.data());
    require_finite(keys, "key", h);
    require_finite(values, "value", h);
    if (format_.key_transform) format_.key_transform->apply(h, keys.data(), n);
    reserve(head.keys, CellKind::keys, entries_ + n);
    if (entries_ == 0) set_given_meta(head.keys, h);
    kernels::encode_rows(view(head.keys, CellKind::keys), entries_, n, keys.data(), d);
    grow(head.recent_values, ledger_, kernels::cell_bytes(residual + n, d, shape().dtype));
    kernels::store_rows(recent(head), residual, n, values.data(), d);
  }
  entries_ += n;
  tail.drop_front(n);
  if (format_.value_transform) pack_values(n);
}

void QuantizedSegment::set_given_meta(Side& side, int64_t kv_head) const {
  if (format_.keys.rule != kernels::QuantRule::given) return;
  const kernels::PackedEntries keys = view(side, CellKind::keys);
  for (int64_t c = 0; c < shape().head_dim; ++c) {
    keys.scale[c] = kernels::f32_to_half(format_.key_scale[kv_head * shape().head_dim + c], format_.keys.meta);
    keys.zero[c] = kernels::f32_to_half(format_.key_zero[kv_head * shape().head_dim + c], format_.keys.meta);
    if (kernels::half_to_f32(keys.scale[c], format_.keys.meta) == 0)
      keys.scale[c] = kernels::f32_to_half(1, format_.keys.meta);
  }
}

void QuantizedSegment::pack_values(int64_t n) {
  if (n == 0) return;
  const int64_t d = shape().head_dim;
  if (mark_ && mark_->recent_values.empty() && mark_->entries > mark_->packed_values) {
    for (const Head& head : heads_) mark_->recent_values.push_back(head.recent_values.clone(mark_->ledger));
  }
  const int64_t left = unpacked_values() - n;
  std::vector<float> values(static_cast<size_t>(n * d));
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    Head& head = heads_[h];
    kernels::load_rows(recent(head), 0, n, values.data(), d);
    if (format_.value_transform) format_.value_transform->apply(h, values.data(), n);
    reserve(head.values, CellKind::values, packed_values_ + n);
    kernels::encode_rows(view(head.values, CellKind::values), packed_values_, n, values.data(), d);

    Buffer rest(ledger_, Tier::device, kernels::cell_bytes(left, d, shape().dtype));
    kernels::Cells to = recent(head);
    to.data = rest.data();
    kernels::copy_entries(recent(head), n, left, to, 0);
    head.recent_values = std::move(rest);
  }
  packed_values_ += n;
}

std::vector<int32_t> QuantizedSegment::positions(int64_t kv_head) const {
  if (!contiguous_) return {heads_[kv_head].positions.begin(), heads_[kv_head].positions.end()};
  std::vector<int32_t> list(static_cast<size_t>(entries_));
  std::iota(list.begin(), list.end(), static_cast<int32_t>(first_position_));
  return list;
}

int64_t QuantizedSegment::bytes() const {
  int64_t total = 0;
  if (mark_) {
    for (const Buffer& held : mark_->recent_values) total += held.bytes();
  }
  for (const Head& head : heads_) {
    total += head.keys.bytes() + head.values.bytes();
    total += head.recent_values.bytes() + static_cast<int64_t>(head.positions.capacity() * sizeof(int32_t));
  }
  for (const auto& transform : {format_.key_transform, format_.value_transform}) {
    if (transform) total += transform->bytes();
  }
  total += static_cast<int64_t>((key_levels_.capacity() + value_levels_.capacity()) * sizeof(float));
  return total;
}

void QuantizedSegment::plan(const LayerQueries& /*queries*/, AttentionPlan& to) const {
  AttentionItem& item = to.add(*this);
  item.dtype = shape().dtype;
  item.key_transform = format_.key_transform;
  item.value_transform = format_.value_transform;
  item.packed.reserve(2 * heads_.size());  // runs point into it
  item.runs.reserve(heads_.size());
  for (const Head& head : heads_) {
    const kernels::PackedEntries& keys = item.packed.emplace_back(view(head.keys, CellKind::keys));
    const kernels::PackedEntries& values = item.packed.emplace_back(view(head.values, CellKind::values));
    item.runs.push_back({.values = head.recent_values.data(),
                         .entries = entries_,
                         .packed_keys = &keys,
                         .packed_key_count = entries_,
                         .packed_values = &values,
                         .packed_value_count = packed_values_});
  }
  item.sees = in_window_of(shape());
}

void QuantizedSegment::read_range(int64_t kv_head, int64_t first, int64_t count, float* keys, float* values) const {
  const Head& head = heads_[kv_head];
  kernels::decode_rows(view(head.keys, CellKind::keys), first, count, keys, shape().head_dim);
  kernels::decode_rows(view(head.values, CellKind::values), first, count, values, shape().head_dim);
}

void QuantizedSegment::mark(const LedgerPtr& held) {
  mark_ = Mark{.ledger = held,
               .entries = entries_,
               .packed_values = packed_values_,
               .contiguous = contiguous_,
               .recent_values = {}};
}

void QuantizedSegment::rewind() {
  Mark mark = std::move(mark_.value());
  mark_.reset();
  const int64_t recent = mark.entries - mark.packed_values;
  const int64_t bytes = kernels::cell_bytes(recent, shape().head_dim, shape().dtype);
  for (size_t h = 0; h < heads_.size(); ++h) {
    Head& head = heads_[h];
    const Buffer& from = mark.recent_values.empty() ? head.recent_values : mark.recent_values[h];
    Buffer values(ledger_, Tier::device, bytes);
    if (bytes > 0 && from.bytes() > 0) std::memcpy(values.data(), from.data(), static_cast<size_t>(bytes));
    head.recent_values = std::move(values);
    head.positions.resize(mark.contiguous ? 0 : static_cast<size_t>(mark.entries));
  }
  entries_ = mark.entries;
  packed_values_ = mark.packed_values;
  contiguous_ = mark.contiguous;
  change_version();
}

void QuantizedSegment::save(const Side& side, CellKind kind, int64_t entries, CacheWriter& to) const {
  const SideBytes bytes = bytes_of(kind, entries);
  const auto put = [&](const Buffer& buffer, int64_t count) {
    to.put_all(std::span<const std::byte>(buffer.data(), static_cast<size_t>(count)));
  };
  put(side.codes, bytes.codes);
  put(side.scale, bytes.scale);
  put(side.zero, bytes.zero);
}

void QuantizedSegment::load(Side& side, CellKind kind, int64_t entries, CacheReader& from) {
  reserve(side, kind, entries);
  const SideBytes bytes = bytes_of(kind, entries);
  const auto get = [&](Buffer& buffer, int64_t count) {
    if (count > 0) from.get_all(std::span<std::byte>(buffer.data(), static_cast<size_t>(count)));
  };
  get(side.codes, bytes.codes);
  get(side.scale, bytes.scale);
  get(side.zero, bytes.zero);
}

void QuantizedSegment::save(CacheWriter& to) const {
  to.put<int64_t>(entries_);
  to.put<int64_t>(packed_values_);
  StoredPositions positions{.first = first_position_};
  for (const Head& head : heads_) {
    if (!contiguous_) positions.heads.emplace_back(head.positions.begin(), head.positions.end());
  }
  positions.save(to);
  for (const auto* levels : {&key_levels_, &value_levels_}) to.put_all(std::span<const float>(*levels));
  std::vector<float> recent_rows(static_cast<size_t>(unpacked_values() * shape().head_dim));
  for (const Head& head : heads_) {
    save(head.keys, CellKind::keys, entries_, to);
    save(head.values, CellKind::values, packed_values_, to);
    kernels::load_rows(recent(head), 0, unpacked_values(), recent_rows.data(), shape().head_dim);
    to.put_numbers(recent_rows, shape().dtype);
  }
}

void QuantizedSegment::load(CacheReader& from) {
  KVARENA_ASSERT(entries_ == 0, "a segment that holds entries already");
  const int64_t d = shape().head_dim;
  entries_ = from.get_count(std::max<int64_t>(1, shape().kv_heads * d * format_.keys.bits / 8));
  packed_values_ = from.get<int64_t>();
  if (packed_values_ < 0 || packed_values_ > entries_) {
    CacheReader::damaged(fmt::format("{} packed values", packed_values_), fmt::format("at most {}", entries_));
  }
  const StoredPositions positions = StoredPositions::load(from, shape().kv_heads, entries_);
  first_position_ = positions.first;
  contiguous_ = positions.heads.empty();
  for (auto* levels : {&key_levels_, &value_levels_}) from.get_all(std::span<float>(*levels));
  std::vector<float> recent_rows(static_cast<size_t>(unpacked_values() * d));
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    Head& head = heads_[h];
    if (!contiguous_) head.positions.assign(positions.heads[h].begin(), positions.heads[h].end());
    load(head.keys, CellKind::keys, entries_, from);
    load(head.values, CellKind::values, packed_values_, from);
    from.get_numbers(recent_rows, shape().dtype);
    grow(head.recent_values, ledger_, kernels::cell_bytes(unpacked_values(), d, shape().dtype));
    kernels::store_rows(recent(head), 0, unpacked_values(), recent_rows.data(), d);
  }
  change_version();
}

std::unique_ptr<Segment> QuantizedSegment::clone(const LedgerPtr& ledger) const {
  QuantizedFormat format = format_;
  format.key_levels.assign(key_levels_.begin(), key_levels_.end());  // load() may have replaced those it began with
  format.value_levels.assign(value_levels_.begin(), value_levels_.end());
  for (RowTransformPtr* transform : {&format.key_transform, &format.value_transform}) {
    if (*transform) *transform = (*transform)->clone(ledger);
  }
  auto copy = std::make_unique<QuantizedSegment>(shape(), format, ledger);
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    const Head& from = heads_[h];
    Head& to = copy->heads_[h];
    for (auto [side_from, side_to] : {std::pair{&from.keys, &to.keys}, std::pair{&from.values, &to.values}}) {
      side_to->codes = side_from->codes.clone(ledger);
      side_to->scale = side_from->scale.clone(ledger);
      side_to->zero = side_from->zero.clone(ledger);
    }
    to.recent_values = from.recent_values.clone(ledger);
    to.positions.assign(from.positions.begin(), from.positions.end());
  }
  copy->entries_ = entries_;
  copy->packed_values_ = packed_values_;
  copy->first_position_ = first_position_;
  copy->contiguous_ = contiguous_;
  return copy;
}

}  // namespace kvarena
