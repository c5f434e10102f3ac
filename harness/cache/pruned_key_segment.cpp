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

/// The entries of a PrunedKeySegment, which must outlive it: keys of its own, values where they lie.
class PrunedKeySegment::WholeKeys final : public Segment {
 public:
  explicit WholeKeys(const PrunedKeySegment& from) : Segment(from.shape()), from_(&from) {
    const int64_t lane = lane_bytes(shape()), cell = shape().head_dim * lane;
    for (const Head& head : from.heads_) {
      const int64_t cells = kernels::cells_for(head.entries);
      std::vector<std::byte>& keys = keys_.emplace_back(static_cast<size_t>(cells * cell));
      const std::byte* stored = head.keys.data();
      for (int64_t at = 0; at < cells * cell; at += cell) {
        for (const uint16_t channel : head.channels) {
          std::memcpy(&keys[static_cast<size_t>(at + channel * lane)], stored, static_cast<size_t>(lane));
          stored += lane;
        }
      }
    }
  }

  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return from_->entries(kv_head); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override { return from_->positions(kv_head); }
  [[nodiscard]] int64_t bytes() const override { return 0; }
  void plan(const LayerQueries& /*queries*/, AttentionPlan& to) const override {
    AttentionItem& item = to.add(*this);
    item.dtype = shape().dtype;
    for (size_t head = 0; head < keys_.size(); ++head) {
      const Head& from = from_->heads_[head];
      item.runs.push_back({.keys = keys_[head].data(), .values = from.values.data(), .entries = from.entries});
      item.ragged = item.ragged || from.entries != from_->entries(0);
    }
    item.sees = in_window_of(shape());
  }
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& /*ledger*/) const override {
    return std::make_unique<WholeKeys>(*from_);
  }

 private:
  const PrunedKeySegment* from_;
  std::vector<std::vector<std::byte>> keys_;  // [kv_heads] of [cells, head_dim, 16]
};

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
  item.gather = [this] { return std::make_unique<WholeKeys>(*this); };
}

std::unique_ptr<Segment> PrunedKeySegment::clone(const LedgerPtr& ledger) const {
  return std::unique_ptr<Segment>(new PrunedKeySegment(*this, ledger));
}

}  // namespace kvarena
