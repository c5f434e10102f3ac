#include "kernels/cells/cells.h"

#include <cstring>

#include "kernels/cells/cells_paths.h"
#include "kernels/common/parallel.h"

namespace kvarena::kernels {
namespace {

char* cell_at(const Cells& cells, int64_t entry) {
  return static_cast<char*>(cells.data) + entry / kCell * cell_bytes(kCell, cells.head_dim, cells.dtype);
}

void require_run(const Cells& cells) {
  require(cells.head_dim > 0 && cells.head_dim % kCell == 0, "cells: head_dim must be a positive multiple of 16");
}

void require_alike(const Cells& a, const Cells& b) {
  require_run(a);
  require(a.kind == b.kind && a.dtype == b.dtype && a.head_dim == b.head_dim, "cells: runs of different kinds");
}

}  // namespace

void store_rows(const Cells& to, int64_t position, int64_t count, const float* rows, int64_t row_stride) {
  require_run(to);
  const CellsTable* fast = KVARENA_ACTIVE_TABLE(cells_table);
  for (int64_t i = 0; i < count;) {
    const int64_t entry = position + i;
    if (fast != nullptr && entry % kCell == 0 && count - i >= kCell) {
      fast->store_cell(to.kind, to.dtype, to.head_dim, cell_at(to, entry), rows + i * row_stride, row_stride);
      i += kCell;
    } else {
      store_entry(to, entry, rows + i * row_stride);
      ++i;
    }
  }
}

void load_rows(const Cells& from, int64_t position, int64_t count, float* rows, int64_t row_stride) {
  require_run(from);
  const CellsTable* fast = KVARENA_ACTIVE_TABLE(cells_table);
  for (int64_t i = 0; i < count;) {
    const int64_t entry = position + i;
    if (fast != nullptr && entry % kCell == 0 && count - i >= kCell) {
      fast->load_cell(from.kind, from.dtype, from.head_dim, cell_at(from, entry), rows + i * row_stride, row_stride);
      i += kCell;
    } else {
      load_entry(from, entry, rows + i * row_stride);
      ++i;
    }
  }
}

void gather_entries(const Cells& from, const int32_t* index, int64_t count, const Cells& to, int64_t position) {
  require_alike(from, to);
  const size_t bytes = static_cast<size_t>(cell_bytes(kCell, from.head_dim, from.dtype));
  for (int64_t i = 0; i < count;) {
    const bool whole = (position + i) % kCell == 0 && count - i >= kCell && index[i] % kCell == 0 &&
                       index[i + kCell - 1] == index[i] + kCell - 1;
    if (whole) {
      std::memmove(cell_at(to, position + i), cell_at(from, index[i]), bytes);
      i += kCell;
    } else {
      copy_entry(from, index[i], to, position + i);
      ++i;
    }
  }
}

void copy_entries(const Cells& from, int64_t from_position, int64_t count, const Cells& to, int64_t to_position) {
  require_alike(from, to);
  int64_t i = 0;
  if (count >= kCell && from_position % kCell == 0 && to_position % kCell == 0) {
    i = count / kCell * kCell;
    std::memmove(cell_at(to, to_position), cell_at(from, from_position),
                 static_cast<size_t>(cell_bytes(i, from.head_dim, from.dtype)));
  }
  for (; i < count; ++i) copy_entry(from, from_position + i, to, to_position + i);
}

}  // namespace kvarena::kernels
