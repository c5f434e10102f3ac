#pragma once
// Entries as codes of rows over all heads: what a codec makes of a token's keys and values together, layer by layer or
// across layers. Attention has all of them put together for each use.

#include <memory>
#include <vector>

#include "harness/cache/codec_side_data.h"

namespace kvarena {

/// Keys, before their rotation, and values of entries: rows [count, kv_heads * head_dim].
struct EntryRows {
  std::vector<float> keys, values;
};

/// Codes of one layer's entries, counted in the ledger they were made or cloned with.
class RowCodes {
 public:
  virtual ~RowCodes() = default;

  /// The next entries, behind the `first` that are there.
  virtual void append(int64_t first, int64_t count, const EntryRows& exact) = 0;
  /// Numbers that the codes of entries 0 .. count-1, which are all there are, stand for.
  [[nodiscard]] virtual EntryRows rows(int64_t count) const = 0;
  /// Forgets all but the first entries.
  virtual void truncate(int64_t entries) = 0;
  [[nodiscard]] virtual int64_t bytes() const = 0;
  [[nodiscard]] virtual std::unique_ptr<RowCodes> clone(const LedgerPtr& ledger) const = 0;
};

class CodedRowsSegment final : public PackedSegment {
 public:
  CodedRowsSegment(const LayerShape& shape, std::unique_ptr<RowCodes> codes, RotaryKeys rotary, LedgerPtr ledger);

  [[nodiscard]] const RowCodes& codes() const { return *codes_; }

  /// Keys and values are coded at once. Throws UserError naming the head when a number is not finite.
  void take(EntrySegment& tail, int64_t n) override;
  void pack_values(int64_t /*n*/) override {}
  [[nodiscard]] int64_t unpacked_values() const override { return 0; }

  [[nodiscard]] int64_t entries(int64_t /*kv_head*/) const override { return positions_.entries(); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override { return positions_.of(kv_head); }
  [[nodiscard]] int64_t bytes() const override { return codes_->bytes() + positions_.bytes(); }
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;
  void mark(const LedgerPtr& /*held*/) override { marked_ = entries(0); }
  void rewind() override;

 private:
  /// All entries as attention takes them.
  [[nodiscard]] std::unique_ptr<Segment> restored() const;

  std::unique_ptr<RowCodes> codes_;
  RotaryKeys rotary_;
  LedgerPtr ledger_;
  EntryPositions positions_;
  int64_t marked_ = 0;
};

}  // namespace kvarena
