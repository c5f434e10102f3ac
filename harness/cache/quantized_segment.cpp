#include "harness/cache/quantized_segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "harness/cache/run_attention.h"
#include "harness/core/error.h"
#include "kernels/cells/cells.h"

namespace kvarena {
namespace {

using kernels::CellKind;

void grow(Buffer& buffer, const LedgerPtr& ledger, int64_t bytes) {
  if (bytes <= buffer.bytes()) return;
  Buffer larger(ledger, Tier::device, bytes);
  if (buffer.bytes() > 0) std::memcpy(larger.data(), buffer.data(), static_cast<size_t>(buffer.bytes()));
  buffer = std::move(larger);
}

void require_finite(const std::vector<float>& rows, const char* what, int64_t head) {
  if (std::ranges::all_of(rows, [](float x) { return std::isfinite(x); })) return;
  fail({.place = fmt::format("kv head {}", head),
        .found = fmt::format("a {} that is not finite", what),
        .expected = "numbers that can be quantised",
        .action = "the checkpoint or its dtype overflows; try dtype f32"});
}

}  // namespace

QuantizedSegment::QuantizedSegment(const LayerShape& shape, const QuantizedFormat& format, LedgerPtr ledger)
    : shape_(shape), format_(format), ledger_(std::move(ledger)) {
  for (int64_t head = 0; head < shape_.kv_heads; ++head) heads_.emplace_back(ledger_);
}

void QuantizedSegment::reserve(Side& side, CellKind kind, int64_t entries) {
  const kernels::QuantFormat& format = kind == CellKind::keys ? format_.keys : format_.values;
  constexpr int64_t kDword = sizeof(uint32_t);
  constexpr int64_t kMeta = sizeof(uint16_t);
  grow(side.codes, ledger_, kDword * kernels::packed_code_dwords(entries, shape_.head_dim, format.bits));
  const int64_t meta = kMeta * kernels::packed_meta_count(kind, entries, shape_.head_dim, format.group_size);
  grow(side.scale, ledger_, meta);
  grow(side.zero, ledger_, meta);
}

kernels::PackedEntries QuantizedSegment::view(const Side& side, CellKind kind) const {
  // Kernels that only read take the same struct.
  const auto pointer = [](const Buffer& buffer) { return const_cast<std::byte*>(buffer.data()); };
  return {.kind = kind,
          .format = kind == CellKind::keys ? format_.keys : format_.values,
          .head_dim = shape_.head_dim,
          .codes = reinterpret_cast<uint32_t*>(pointer(side.codes)),
          .scale = reinterpret_cast<uint16_t*>(pointer(side.scale)),
          .zero = reinterpret_cast<uint16_t*>(pointer(side.zero))};
}

kernels::Cells QuantizedSegment::recent(const Head& head) const {
  return {.kind = CellKind::values,
          .dtype = shape_.dtype,
          .head_dim = shape_.head_dim,
          .data = const_cast<std::byte*>(head.recent_values.data())};
}

void QuantizedSegment::take_positions(const EntrySegment& tail, int64_t n) {
  const std::vector<int32_t> front = tail.positions(0);
  if (entries_ == 0) first_position_ = front.front();
  const bool follows = tail.form() == StorageForm::dense && front.front() == first_position_ + entries_;
  if (contiguous_ && follows) return;
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
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
  const int64_t d = shape_.head_dim;
  const int64_t residual = unpacked_values();
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    Head& head = heads_[h];
    std::vector<float> keys(static_cast<size_t>(tail.entries(h) * d));
    std::vector<float> values(keys.size());
    tail.read(h, keys.data(), values.data());
    require_finite(keys, "key", h);
    require_finite(values, "value", h);
    reserve(head.keys, CellKind::keys, entries_ + n);
    kernels::encode_rows(view(head.keys, CellKind::keys), entries_, n, keys.data(), d);
    grow(head.recent_values, ledger_, kernels::cell_bytes(residual + n, d, shape_.dtype));
    kernels::store_rows(recent(head), residual, n, values.data(), d);
  }
  entries_ += n;
  tail.drop_front(n);
}

void QuantizedSegment::pack_values(int64_t n) {
  const int64_t d = shape_.head_dim;
  const int64_t left = unpacked_values() - n;
  std::vector<float> values(static_cast<size_t>(n * d));
  for (Head& head : heads_) {
    kernels::load_rows(recent(head), 0, n, values.data(), d);
    reserve(head.values, CellKind::values, packed_values_ + n);
    kernels::encode_rows(view(head.values, CellKind::values), packed_values_, n, values.data(), d);

    Buffer rest(ledger_, Tier::device, kernels::cell_bytes(left, d, shape_.dtype));
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
  for (const Head& head : heads_) {
    total += head.keys.bytes() + head.values.bytes();
    total += head.recent_values.bytes() + static_cast<int64_t>(head.positions.capacity() * sizeof(int32_t));
  }
  return total;
}

QuantizedSegment::Runs QuantizedSegment::runs() const {
  Runs all;
  all.keys.reserve(heads_.size());  // runs point into these lists
  all.values.reserve(heads_.size());
  for (const Head& head : heads_) {
    all.keys.push_back(view(head.keys, CellKind::keys));
    all.values.push_back(view(head.values, CellKind::values));
    all.runs.push_back({.values = head.recent_values.data(),
                        .entries = entries_,
                        .packed_keys = &all.keys.back(),
                        .packed_key_count = entries_,
                        .packed_values = &all.values.back(),
                        .packed_value_count = packed_values_});
  }
  return all;
}

void QuantizedSegment::attend(const LayerQueries& queries, bool causal, kernels::AttentionState& state) const {
  const Runs packed = runs();
  if (shape_.window > 0) {
    attend_window(
        shape_, packed.runs, [this](int64_t head) { return positions(head); }, queries, state);
  } else {
    attend_runs(shape_, packed.runs, queries, causal, state);
  }
}

void QuantizedSegment::add_probabilities(const LayerQueries& queries, bool causal, const float* lse, float* sums,
                                         int64_t row_stride) const {
  const Runs packed = runs();
  if (shape_.window > 0) {
    const auto at = [this](int64_t head) { return positions(head); };
    add_window_probabilities(shape_, packed.runs, at, queries, lse, sums, row_stride);
  } else {
    add_run_probabilities(shape_, packed.runs, queries, causal, lse, sums, row_stride);
  }
}

void QuantizedSegment::read(int64_t kv_head, float* keys, float* values) const {
  const Head& head = heads_[kv_head];
  const int64_t d = shape_.head_dim;
  if (keys != nullptr) kernels::decode_rows(view(head.keys, CellKind::keys), 0, entries_, keys, d);
  if (values != nullptr) {
    kernels::decode_rows(view(head.values, CellKind::values), 0, packed_values_, values, d);
    kernels::load_rows(recent(head), 0, unpacked_values(), values + packed_values_ * d, d);
  }
}

std::unique_ptr<Segment> QuantizedSegment::clone(const LedgerPtr& ledger) const {
  auto copy = std::make_unique<QuantizedSegment>(shape_, format_, ledger);
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
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
