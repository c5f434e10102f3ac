#pragma once
// Division of a model among ranks: by rows of its matrices, which are outputs. No sum runs over ranks: each number is
// computed whole by one of them, in the order in which one machine alone computes it, so that all bits stay the same.

#include <algorithm>
#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace kvarena {

/// Rows begin .. end-1.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;

  [[nodiscard]] int64_t count() const { return end - begin; }
  [[nodiscard]] bool holds(int64_t row) const { return row >= begin && row < end; }
  /// The part of rows first .. first+rows-1 that lies in this range, counted from `first`.
  [[nodiscard]] RowRange among(int64_t first, int64_t rows) const {
    return {.begin = std::clamp<int64_t>(begin - first, 0, rows), .end = std::clamp<int64_t>(end - first, 0, rows)};
  }
};

/// One of the ranks 0 .. ranks-1 of a model. Rank 0 is the driver: it runs the program, the others compute for it.
struct Share {
  int64_t rank = 0;
  int64_t ranks = 1;

  /// The rows of `n` that this rank holds: whole units, divided evenly (none where there are fewer units than ranks),
  /// lower ranks first. The unit of a matrix is a panel, so that no share stores padding; that of heads is one.
  [[nodiscard]] RowRange of(int64_t n, int64_t unit = kernels::PackedMatrix::kPanel) const {
    const int64_t units = (n + unit - 1) / unit;
    return {.begin = std::min(n, units * rank / ranks * unit), .end = std::min(n, units * (rank + 1) / ranks * unit)};
  }
};

}  // namespace kvarena
