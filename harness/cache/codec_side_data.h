#pragma once
// Parts that codec_side_data of codecs are made of: exact outliers, keys without their rotary rotation.

#include "harness/cache/dequantizing_segment.h"

namespace kvarena {

/// A few numbers of each entry kept by themselves, over all heads: channel h * head_dim + c. 16 bits of index, 16 bits
/// of value (f16) and 16 bits of count an entry.
class SparseRows {
 public:
  explicit SparseRows(const LedgerPtr& ledger);
  SparseRows(const SparseRows& from, const LedgerPtr& ledger);

  struct Element {
    uint16_t channel = 0;
    float value = 0;
  };
  /// The elements of the next entry.
  void append(const std::vector<Element>& elements);
  /// The step that puts them in their places, valid as long as the rows are.
  [[nodiscard]] SparseOverride dequant_op() const;
  /// Gives back memory held for growth.
  void shrink();
  [[nodiscard]] int64_t bytes() const;
  void save(CacheWriter& to) const;
  /// Takes what save() wrote of so many entries of so many channels, into rows of none.
  void load(CacheReader& from, int64_t entries, int64_t channels);

 private:
  static constexpr int64_t kStride = 512;  // entries between two starts

  LedgerVector<uint16_t> counts_;  // [entries]
  LedgerVector<uint32_t> starts_;  // where the elements of every kStride-th entry begin
  LedgerVector<uint16_t> channels_;
  LedgerVector<uint16_t> values_;  // f16
};

/// Rotary rotation of a layer's keys, in float32.
class RotaryKeys {
 public:
  /// Radians per position, [head_dim / 2]; empty: no rotation.
  explicit RotaryKeys(const std::vector<double>& frequencies)
      : frequencies_(std::make_shared<const std::vector<double>>(frequencies)) {}

  /// Turns rows [count, head_dim] back to position 0.
  void undo(float* rows, const std::vector<int32_t>& positions) const;
  /// Turns rows [count, head_dim] at position 0 to their positions.
  void redo(float* rows, const std::vector<int32_t>& positions) const;
  /// Appends the step that rotates keys to their positions, where there is a rotation.
  void add_dequant_op(const PositionReader& positions, std::vector<DequantOp>& to) const;

 private:
  [[nodiscard]] int64_t half() const { return static_cast<int64_t>(frequencies_->size()); }
  void turn(float* rows, const std::vector<int32_t>& by) const;

  std::shared_ptr<const std::vector<double>> frequencies_;  // the model's, shared by clones
};

}  // namespace kvarena
