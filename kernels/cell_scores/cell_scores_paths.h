#pragma once
// Internal: all rows against one cell.

#include "kernels/cell_scores/cell_scores.h"
#include "kernels/common/dispatch.h"

namespace kvarena::kernels {

struct CellScoresWork {
  const float* q;  // [rows], q_stride apart
  int64_t rows;
  int64_t q_stride;
  DType dtype;
  int64_t channels;
  const void* cell;  // [channels][16]
  int64_t entries;   // present in the cell, 1 .. 16
  float* scores;     // score of the cell's first entry
  int64_t score_stride;
};

struct CellScoresTable {
  void (*score)(const CellScoresWork& work);
};
KVARENA_DECLARE_TABLE(CellScoresTable, cell_scores_table);

extern const CellScoresTable cell_scores_reference;

}  // namespace kvarena::kernels
