#pragma once
// Packed entries under the asymmetric min-max group quantiser (kernels/quantize), attended as they lie.

#include "harness/cache/packed_segment.h"
#include "kernels/quantize/quantize.h"

namespace kvarena {

/// How a layer is quantised. Keys are grouped per channel along tokens, values per token along channels.
struct QuantizedFormat {
  kernels::QuantFormat keys;
  kernels::QuantFormat values;
};

class QuantizedSegment final : public PackedSegment {
 public:
  QuantizedSegment(const LayerShape& shape, const QuantizedFormat& format, LedgerPtr ledger);

  /// Throws UserError naming the head when a key or value is not finite.
  void take(EntrySegment& tail, int64_t n) override;
  void pack_values(int64_t n) override;
  [[nodiscard]] int64_t unpacked_values() const override { return entries_ - packed_values_; }

  [[nodiscard]] int64_t entries(int64_t /*kv_head*/) const override { return entries_; }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  [[nodiscard]] int64_t bytes() const override;
  void attend(const LayerQueries& queries, bool causal, kernels::AttentionState& state) const override;
  void add_probabilities(const LayerQueries& queries, bool causal, const float* lse, float* sums,
                         int64_t row_stride) const override;
  void read(int64_t kv_head, float* keys, float* values) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

 private:
  /// Codes, scales and zero points of one side of one head.
  struct Side {
    Buffer codes;
    Buffer scale;
    Buffer zero;
    [[nodiscard]] int64_t bytes() const { return codes.bytes() + scale.bytes() + zero.bytes(); }
  };
  struct Head {
    explicit Head(const LedgerPtr& ledger) : positions(LedgerAllocator<int32_t>(ledger)) {}
    Side keys;
    Side values;
    Buffer recent_values;             // cells of the values that are not packed yet
    LedgerVector<int32_t> positions;  // empty while positions are contiguous
  };

  /// Runs of all heads with the packed views that they point to.
  struct Runs {
    std::vector<kernels::PackedEntries> keys;
    std::vector<kernels::PackedEntries> values;
    std::vector<kernels::HeadRun> runs;
  };

  void reserve(Side& side, kernels::CellKind kind, int64_t entries);
  [[nodiscard]] kernels::PackedEntries view(const Side& side, kernels::CellKind kind) const;
  [[nodiscard]] kernels::Cells recent(const Head& head) const;
  [[nodiscard]] Runs runs() const;
  void take_positions(const EntrySegment& tail, int64_t n);

  LayerShape shape_;
  QuantizedFormat format_;
  LedgerPtr ledger_;
  std::vector<Head> heads_;
  int64_t entries_ = 0;
  int64_t packed_values_ = 0;
  int64_t first_position_ = 0;
  bool contiguous_ = true;
};

}  // namespace kvarena
