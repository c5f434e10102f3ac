#include "harness/cache/pruned_key_segment.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace kvarena {

using kernels::CellKind;
using kernels::Cells;

namespace {

Cells values_in(const LayerShape& shape, const void* memory) {
  return {
      .kind = CellKind::values, .dtype = shape.dtype, .head_dim = shape.head_dim, .data = const_cast<void*>(memory)};
}

/// Copies channels of the first `count` entries of whole keys to entries `at` and on of keys with these channels alone.
void copy_channels(const LayerShape& shape, const void* whole, int64_t count, std::span<const uint16_t> channels,
                   std::byte* to, int64_t at) {
  const int64_t size = kernels::size_of(shape.dtype), width = std::ssize(channels);
  for (int64_t entry = 0, run = 0; entry < count; entry += run) {
    run = std::min(
        {kernels::kCell - entry % kernels::kCell, kernels::kCell - (at + entry) % kernels::kCell, count - entry});
    for (int64_t i = 0; i < width; ++i) {
      std::memcpy(to + kernels::cell_offset(CellKind::keys, width, at + entry, i) * size,
                  static_cast<const std::byte*>(whole) +
                      kernels::cell_offset(CellKind::keys, shape.head_dim, entry, channels[i]) * size,
                  static_cast<size_t>(run * size));
    }
  }
}

}  // namespace

PrunedKeySegment::PrunedKeySegment(const EntrySegment& from, std::span<const int64_t> counts, const Channels& channels,
                                   LedgerPtr ledger)
    : Segment(from.shape()), ledger_(std::move(ledger)) {
  for (const std::vector<int32_t>& own : channels) heads_.emplace_back(ledger_).channels.assign(own.begin(), own.end());
  append(from, counts);
}

PrunedKeySegment::PrunedKeySegment(const PrunedKeySegment& from, const LedgerPtr& ledger)
    : Segment(from.shape()), ledger_(ledger) {
  for (const Head& head : from.heads_) {
    Head& own = heads_.emplace_back(ledger);
    own.keys = head.keys.clone(ledger);
    own.values = head.values.clone(ledger);
    own.entries = head.entries;
    own.first_position = head.first_position;
    own.positions.assign(head.positions.begin(), head.positions.end());
    own.channels.assign(head.channels.begin(), head.channels.end());
  }
}

void PrunedKeySegment::append(const EntrySegment& from, std::span<const int64_t> counts) {
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    Head& head = heads_[h];
    const int64_t count = counts[static_cast<size_t>(h)], held = head.entries;
    resize(head, held + count);
    if (count == 0) continue;
    const kernels::HeadRun run = from.run(h);
    copy_channels(shape(), run.keys, count, head.channels, head.keys.data(), held);
    kernels::copy_entries(values_in(shape(), run.values), 0, count, values_in(shape(), head.values.data()), held);
    append_positions(head, from, h, count);
    head.entries = held + count;
  }
}

void PrunedKeySegment::resize(Head& head, int64_t entries) {
  const int64_t size = kernels::size_of(shape().dtype);
  head.keys.resize(ledger_, kernels::cells_for(entries) * kernels::kCell * std::ssize(head.channels) * size);
  head.values.resize(ledger_, kernels::cell_bytes(entries, shape().head_dim, shape().dtype));
}

void PrunedKeySegment::append_positions(Head& head, const EntrySegment& from, int64_t kv_head, int64_t count) const {
  if (head.entries == 0) head.first_position = from.position(kv_head, 0);
  const bool goes_on = from.position(kv_head, 0) == head.first_position + head.entries;
  if (!from.ragged() && head.positions.empty() && goes_on) return;
  if (head.positions.empty()) {
    head.positions.resize(static_cast<size_t>(head.entries));
    std::iota(head.positions.begin(), head.positions.end(), head.first_position);
  }
  const std::vector<int32_t> positions = from.positions(kv_head);
  head.positions.insert(head.positions.end(), positions.begin(), positions.begin() + count);
}

void PrunedKeySegment::mark(const LedgerPtr& /*held*/) {
  for (Head& head : heads_) head.marked = head.entries;
}

void PrunedKeySegment::rewind() {
  for (Head& head : heads_) {
    head.entries = head.marked;
    resize(head, head.entries);
    if (!head.positions.empty()) head.positions.resize(static_cast<size_t>(head.entries));
  }
  change_version();
}

std::vector<int32_t> PrunedKeySegment::positions(int64_t kv_head) const {
  const Head& head = heads_[kv_head];
  if (!head.positions.empty()) return {head.positions.begin(), head.positions.end()};
  std::vector<int32_t> run(static_cast<size_t>(head.entries));
  std::iota(run.begin(), run.end(), head.first_position);
  return run;
}

int64_t PrunedKeySegment::bytes() const {
  int64_t total = 0;
  for (const Head& head : heads_) {
    total +=
        head.keys.bytes() + head.values.bytes() +
        static_cast<int64_t>(head.positions.capacity() * sizeof(int32_t) + head.channels.capacity() * sizeof(uint16_t));
  }
  return total;
}

void PrunedKeySegment::plan(const LayerQueries& /*queries*/, AttentionPlan& to) const {
  AttentionItem& item = to.add(*this);
  item.dtype = shape().dtype;
  for (const Head& head : heads_) {
    item.runs.push_back({.keys = head.keys.data(), .values = head.values.data(), .entries = head.entries});
    item.ragged = item.ragged || head.entries != heads_.front().entries;
  }
  item.steps.keys = in_order(PermuteChannels{[this] { return places(); }});
  item.sees = in_window_of(shape());
}

std::vector<int32_t> PrunedKeySegment::places() const {
  std::vector<int32_t> all;
  for (size_t h = 0; h < heads_.size(); ++h) {
    for (const uint16_t channel : heads_[h].channels)
      all.push_back(static_cast<int32_t>(static_cast<int64_t>(h) * shape().head_dim + channel));
  }
  return all;
}

std::unique_ptr<Segment> PrunedKeySegment::clone(const LedgerPtr& ledger) const {
  return std::unique_ptr<Segment>(new PrunedKeySegment(*this, ledger));
}

}  // namespace kvarena
