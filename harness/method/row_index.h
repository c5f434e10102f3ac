#pragma once
// An index of rows of numbers, one or more a head: leading components of keys, landmarks, centroids. Stored in cells
// as keys are, so that scores against queries are those kernels'.

#include <span>

#include "harness/cache/layer_cache.h"

namespace kvarena {

/// A growing list of rows [count, channels] of one head, counted in its ledger.
class RowList {
 public:
  RowList(int64_t channels, DType dtype, const LedgerPtr& ledger);

  /// Appends rows [count, channels], rounded to the list's type.
  void append(std::span<const float> rows);
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] int64_t channels() const { return channels_; }
  [[nodiscard]] int64_t bytes() const { return static_cast<int64_t>(cells_.capacity()); }
  /// scores [rows, count()] = inner products of the rows of q [rows, channels], q_stride apart.
  void score(const float* q, int64_t rows, int64_t q_stride, std::span<float> scores) const;
  /// Row `row` as numbers.
  [[nodiscard]] std::vector<float> row(int64_t row) const;
  [[nodiscard]] RowList clone(const LedgerPtr& ledger) const;

 private:
  int64_t channels_;
  DType dtype_;
  int64_t count_ = 0;
  LedgerVector<std::byte> cells_;
};

/// A list a kv head.
struct RowIndex : public LayerIndex {
  RowIndex(int64_t kv_heads, int64_t channels, DType dtype, const LedgerPtr& ledger);

  std::vector<RowList> heads;

  [[nodiscard]] int64_t bytes() const override;
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override;
};

}  // namespace kvarena
