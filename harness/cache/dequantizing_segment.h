#pragma once
// Packed entries whose numbers are more than codes with a scale: exact outliers, low-rank corrections, keys stored
// before their rotary rotation. Codes are a QuantizedSegment's; a CodecSideData holds the rest. Attention decodes a chunk
// at a time into scratch that stays in the cache, lets the side_data complete it, and attends to that.

#include "harness/cache/quantized_segment.h"
#include "harness/cache/dequant_program.h"

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

/// A chunk being restored: f32 cells (kernels/cells) of all heads, entries first .. first+count-1; first is a multiple
/// of 16.
struct DequantChunk {
  int64_t first = 0;
  int64_t count = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  std::vector<float> keys;                      // [kv_heads, cells, head_dim, 16]
  std::vector<float> values;                    // [kv_heads, cells, 16, head_dim]
  std::vector<std::vector<int32_t>> positions;  // [kv_heads][count]

  [[nodiscard]] int64_t head_floats() const { return kernels::cells_for(count) * kernels::kCell * head_dim; }
  [[nodiscard]] float* key_cells(int64_t head) { return &keys[head * head_floats()]; }
  [[nodiscard]] float* value_cells(int64_t head) { return &values[head * head_floats()]; }
  /// Element (entry first + i, channel c).
  [[nodiscard]] float& key(int64_t head, int64_t i, int64_t c) {
    return keys[head * head_floats() + kernels::cell_offset(kernels::CellKind::keys, head_dim, i, c)];
  }
  [[nodiscard]] float& value(int64_t head, int64_t i, int64_t c) {
    return values[head * head_floats() + i * head_dim + c];
  }
};

/// What a codec stores beside codes. Its memory is counted in the ledger it was made or cloned with.
class CodecSideData {
 public:
  virtual ~CodecSideData() = default;

  /// Before entries first .. first+block.count-1 are quantised: turns the block into the numbers whose codes are
  /// stored.
  virtual void prepare(int64_t first, EntryBlock& block) = 0;
  /// After: the block as prepare() left it, and what its codes say.
  virtual void complete(int64_t /*first*/, const EntryBlock& /*prepared*/, const EntryBlock& /*decoded*/) {}
  /// Turns what codes say into keys and values.
  virtual void restore(DequantChunk& chunk) const = 0;
  /// restore() in words, for a device; none where they do not say it.
  [[nodiscard]] virtual std::optional<DequantOps> device_ops(const PositionReader& /*positions*/) const {
    return std::nullopt;
  }

  [[nodiscard]] virtual int64_t bytes() const = 0;
  [[nodiscard]] virtual std::unique_ptr<CodecSideData> clone(const LedgerPtr& ledger) const = 0;
};

class DequantizingSegment final : public PackedSegment, public Dequantizable {
 public:
  DequantizingSegment(const LayerShape& shape, const QuantizedFormat& format, std::unique_ptr<CodecSideData> side_data,
                  LedgerPtr ledger);

  /// Keys and values are packed at once; no value stays in 16 bits. Throws UserError naming the head when a key or
  /// value is not finite.
  void take(EntrySegment& tail, int64_t n) override;
  void pack_values(int64_t /*n*/) override {}
  [[nodiscard]] int64_t unpacked_values() const override { return 0; }
  [[nodiscard]] const LayerShape& shape() const override { return shape_; }
  [[nodiscard]] uint64_t version() const override { return codes_->version(); }
  [[nodiscard]] std::optional<DequantProgram> dequant_program() const override;

  [[nodiscard]] int64_t entries(int64_t kv_head) const override { return codes_->entries(kv_head); }
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head) const override;
  [[nodiscard]] int64_t bytes() const override;
  /// `causal` must be false: new entries lie in the tail.
  void attend(const LayerQueries& queries, bool causal, kernels::AttentionState& state) const override;
  void add_probabilities(const LayerQueries& queries, bool causal, const float* lse, float* sums,
                         int64_t row_stride) const override;
  void read(int64_t kv_head, float* keys, float* values) const override;
  [[nodiscard]] std::unique_ptr<Segment> clone(const LedgerPtr& ledger) const override;

 private:
  DequantizingSegment(const DequantizingSegment& from, const LedgerPtr& ledger);
  void note_positions(const EntryBlock& block);
  [[nodiscard]] std::vector<int32_t> positions(int64_t kv_head, int64_t first, int64_t count) const;
  [[nodiscard]] EntryBlock front_of(const EntrySegment& tail, int64_t n) const;
  [[nodiscard]] LayerShape float_shape() const;
  /// Calls visit(chunk, runs) for chunks of kernels::kChunk entries in order.
  template <class Visit>
  void each_chunk(const Visit& visit) const;

  LayerShape shape_;
  LedgerPtr ledger_;
  std::unique_ptr<QuantizedSegment> codes_;  // its positions are entry numbers
  std::unique_ptr<CodecSideData> side_data_;
  std::vector<LedgerVector<int32_t>> positions_;  // [kv_heads], empty while positions are contiguous
  int64_t first_position_ = 0;
  bool contiguous_ = true;
};

}  // namespace kvarena
