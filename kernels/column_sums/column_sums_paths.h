#pragma once
// Internal: one kv head's range of listed entries against all queries of a problem.

#include "kernels/column_sums/column_sums.h"
#include "kernels/common/dispatch.h"

namespace kvarena::kernels {

struct ColumnSumsWork {
  const ColumnSumsArgs* args;
  const ColumnSumsProblem* problem;
  int64_t kv_head;
  int64_t first;  // list position, multiple of 16 when the run has no index
  int64_t count;  // at most kChunk
  // Visible list positions of query t: low[t] .. high[t]-1, relative to `first`, [q_len].
  const int32_t* low;
  const int32_t* high;
  float* work;  // scratch of packed_key_floats(head_dim) floats, and of some rows of q as pairs of bf16
};

struct ColumnSumsTable {
  void (*run)(const ColumnSumsWork& work);
};
KVARENA_DECLARE_BF16_TABLE(ColumnSumsTable, column_sums_table);

void column_sums_reference(const ColumnSumsWork& work);

}  // namespace kvarena::kernels
