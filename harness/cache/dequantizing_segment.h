#pragma once
// Packed entries whose numbers are more than codes with a scale: exact outliers, low-rank corrections, keys stored
// before their rotary rotation. Codes are a QuantizedSegment's; a CodecSideData holds the rest. Attention decodes a
// chunk at a time into scratch that stays in the cache, lets the side_data complete it, and attends to that.

#include <functional>

#include "harness/cache/entry_positions.h"
#include "harness/cache/quantized_segment.h"

namespace kvarena {

/// Entries of all kv heads as numbers, [kv_heads, count, head_dim] each.
struct EntryBlock {
  int64_t kv_heads = 0;
  int64_t count = 0;
  int64_t head_dim = 0;
  std::vector<float> keys;
  std::vector<float> values;
  std::vector<std::vector<int32_t>> positions;  // [kv_heads][count], original ones

  [[nodiscard]] float* key(int64_t head, int64_t i) { return &keys[(head * count + i) * head_dim]; }
  [[nodiscard]] float* value(int64_t head, int64_t i) { return &values[(head * count + i) * head_dim]; }
  [[nodiscard]] const float* key(int64_t head, int64_t i) const { return &keys[(head * count + i) * head_dim]; }
  [[nodiscard]] const float* value(int64_t head, int64_t i) const { return &values[(head * count + i) * head_dim]; }
};

/// Reads the first n entries of every head. Throws UserError naming the head when a key or value is not finite.
[[nodiscard]] EntryBlock front_of(const EntrySegment& tail, int64_t n);

/// Numbers that a codec stores beside codes. Their memory is counted in the ledger it was made or cloned with.
class CodecSideData {
 public:
  virtual ~CodecSideData() = default;

  /// Before entries first .. first+block.count-1 are quantised: turns the block into the numbers whose codes are
  /// stored.
  virtual void prepare(int64_t first, EntryBlock& block) = 0;
  /// After: the block as prepare() left it, and a function that decodes what its codes say.
  virtual void complete(int64_t /*first*/, const EntryBlock& /*prepared*/,
                        const std::function<EntryBlock()>& /*decode*/) {}
  /// How decoded codes become keys and values; `positions`: of the entries.
  [[nodiscard]] virtual DequantProgram dequant_program(const PositionReader& positions) const = 0;

  [[nodiscard]] virtual int64_t bytes() const = 0;
  [[nodiscard]] virtual std::unique_ptr<CodecSideData> clone(const LedgerPtr& ledger) const = 0;
};

/// Side data that a store can hold.
class StorableSideData : public CodecSideData {
 public:
  virtual void save(CacheWriter& to) const = 0;
  /// Takes what save() wrote of `entries` entries, into data of none.
  virtual void load(CacheReader& from, int64_t entries) = 0;
};

class DequantizingSegment final : public PackedSegment, public Storable {
 public:
  DequantizingSegment(const LayerShape& shape, const QuantizedFormat& format, std::unique_ptr<CodecSideData> side_data,
                      LedgerPtr ledger);

  /// Keys and values are packed at once; no value stays in 16 bits. Throws UserError naming the head when a key or
  /// value is not finite.
  void take(EntrySegment& tail, int64_t n) override;
  void pack_values(int64_t /*n*/) override {}
  [[nodiscard]] int64_t unpacked_values() const override { return 0; }

  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return codes_->entries(kv_head); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override { return positions_.of(kv_head); }
  [[nodiscard]] int64_t bytes() const override;
  void plan(const LayerQueries& queries, AttentionPlan& to) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;
  /// Side data are held back as a copy.
  void mark(const LedgerPtr& held) override;
  void rewind() override;
  void unmark() override;
  /// Needs side data that are StorableSideData.
  void save(CacheWriter& to) const override;
  void load(CacheReader& from) override;

 private:
  struct Mark {
    LedgerPtr ledger;  // of side_data
    std::unique_ptr<CodecSideData> side_data;
    int64_t entries = 0;
  };
  DequantizingSegment(const DequantizingSegment& from, const LedgerPtr& ledger);

  LedgerPtr ledger_;
  std::unique_ptr<QuantizedSegment> codes_;  // its positions are entry numbers
  std::unique_ptr<CodecSideData> side_data_;
  EntryPositions positions_;
  std::optional<Mark> mark_;
};

}  // namespace kvarena
