#pragma once
// Internal: the transposing moves of cells that have a SIMD version, and the plain ones.

#include "kernels/cells/cells.h"
#include "kernels/common/dispatch.h"

namespace kvarena::kernels {

struct CellsTable {
  /// Moves 16 rows to and from one whole cell.
  void (*store_cell)(CellKind kind, DType dtype, int64_t head_dim, void* cell, const float* rows, int64_t row_stride);
  void (*load_cell)(CellKind kind, DType dtype, int64_t head_dim, const void* cell, float* rows, int64_t row_stride);
};
KVARENA_DECLARE_TABLE(CellsTable, cells_table);

/// Stores one entry, element by element.
void store_entry(const Cells& to, int64_t entry, const float* row);
void load_entry(const Cells& from, int64_t entry, float* row);
/// Copies one entry's bits.
void copy_entry(const Cells& from, int64_t from_entry, const Cells& to, int64_t to_entry);

}  // namespace kvarena::kernels
