#include "harness/cache/pruned_key_segment.h"

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

/// Bytes of a channel of a cell of keys.
int64_t lane_bytes(const LayerShape& shape) { return kernels::kCell * kernels::size_of(shape.dtype); }

}  // namespace

PrunedKeySegment::PrunedKeySegment(const EntrySegment& from, std::span<const int64_t> counts, const Channels& channels,
                                   LedgerPtr ledger)
    : Segment(from.shape()) {
  const int64_t lane = lane_bytes(shape());
  for (int64_t h = 0; h < shape().kv_heads; ++h) {
    Head& head = heads_.emplace_back(ledger);
    head.entries = counts[static_cast<size_t>(h)];
    head.channels.assign(channels[static_cast<size_t>(h)].begin(), channels[static_cast<size_t>(h)].end());
    const int64_t cells = kernels::cells_for(head.entries), width = std::ssize(head.channels);
    const kernels::HeadRun run = from.run(h);
    head.keys = Buffer(ledger, Tier::device, cells * width * lane);
    std::byte* to = head.keys.data();
    for (int64_t cell = 0; cell < cells; ++cell) {
      const std::byte* const whole = static_cast<const std::byte*>(run.keys) + cell * shape().head_dim * lane;
      for (const uint16_t channel : head.channels) {
        std::memcpy(to, whole + channel * lane, static_cast<size_t>(lane));
        to += lane;
      }
    }
    head.values = Buffer(ledger, Tier::device, kernels::cell_bytes(head.entries, shape().head_dim, shape().dtype));
    if (head.entries == 0) continue;
    kernels::copy_entries(values_in(shape(), run.values), 0, head.entries, values_in(shape(), head.values.data()), 0);
    first_position_ = from.position(h, 0);
    if (!from.ragged()) continue;
    const std::vector<int32_t> positions = from.positions(h);
    head.positions.assign(positions.begin(), positions.begin() + head.entries);
  }
}

PrunedKeySegment::PrunedKeySegment(const PrunedKeySegment& from, const LedgerPtr& ledger)
    : Segment(from.shape()), first_position_(from.first_position_) {
  for (const Head& head : from.heads_) {
    Head& own = heads_.emplace_back(ledger);
    own.keys = head.keys.clone(ledger);
    own.values = head.values.clone(ledger);
    own.entries = head.entries;
    own.positions.assign(head.positions.begin(), head.positions.end());
    own.channels.assign(head.channels.begin(), head.channels.end());
  }
}

std::vector<int32_t> PrunedKeySegment::positions(int64_t kv_head) const {
  const Head& head = heads_[kv_head];
  if (!head.positions.empty()) return {head.positions.begin(), head.positions.end()};
  std::vector<int32_t> run(static_cast<size_t>(head.entries));
  std::iota(run.begin(), run.end(), static_cast<int32_t>(first_position_));
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
