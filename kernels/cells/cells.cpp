#include "kernels/cells/cells.h"

#include <array>
#include <cstring>
#include <utility>

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

/// Makes a cell of keys of entries kShift .. 15 of one cell and the first kShift of the cell behind it.
template <class Bits, int kShift>
void join_cells(const char* from, int64_t head_dim, char* to) {
  constexpr size_t kSize = sizeof(Bits), kRow = kCell * kSize, kFirst = (kCell - kShift) * kSize;
  const char* next = from + static_cast<size_t>(head_dim) * kRow;
  for (int64_t channel = 0; channel < head_dim; ++channel, from += kRow, next += kRow, to += kRow) {
    std::memmove(to, from + kShift * kSize, kFirst);
    std::memcpy(to + kFirst, next, kShift * kSize);
  }
}

using Join = void (*)(const char*, int64_t, char*);

/// By shift, of 16 bits and of 32.
template <int... kShift>
constexpr std::array<std::array<Join, 2>, kCell> all_joins(std::integer_sequence<int, kShift...> /*shifts*/) {
  return {{{join_cells<uint16_t, kShift>, join_cells<uint32_t, kShift>}...}};
}

/// Copies keys to `count` whole cells that begin at to_position, a multiple of 16.
void copy_cells(const Cells& from, int64_t from_position, int64_t count, const Cells& to, int64_t to_position) {
  static constexpr auto kJoins = all_joins(std::make_integer_sequence<int, kCell>());
  const int64_t bytes = cell_bytes(kCell, from.head_dim, from.dtype);
  if (from_position % kCell == 0) {
    std::memmove(cell_at(to, to_position), cell_at(from, from_position), static_cast<size_t>(count * bytes));
    return;
  }
  const Join join = kJoins[static_cast<size_t>(from_position % kCell)][from.dtype == DType::f32 ? 1 : 0];
  for (int64_t i = 0; i < count; ++i) {
    join(cell_at(from, from_position) + i * bytes, from.head_dim, cell_at(to, to_position) + i * bytes);
  }
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
  for (int64_t i = 0; i < count;) {
    int64_t run = 1;
    while (i + run < count && index[i + run] == index[i] + run) ++run;
    copy_entries(from, index[i], run, to, position + i);
    i += run;
  }
}

void copy_entries(const Cells& from, int64_t from_position, int64_t count, const Cells& to, int64_t to_position) {
  require_alike(from, to);
  if (count == 0 || (from.data == to.data && from_position == to_position)) return;
  if (from.kind == CellKind::values) {
    const int64_t row = from.head_dim * size_of(from.dtype);
    std::memmove(static_cast<char*>(to.data) + to_position * row,
                 static_cast<const char*>(from.data) + from_position * row, static_cast<size_t>(count * row));
    return;
  }
  int64_t i = 0;
  for (; i < count && (to_position + i) % kCell != 0; ++i) copy_entry(from, from_position + i, to, to_position + i);
  const int64_t whole = (count - i) / kCell;
  copy_cells(from, from_position + i, whole, to, to_position + i);
  for (i += whole * kCell; i < count; ++i) copy_entry(from, from_position + i, to, to_position + i);
}

}  // namespace kvarena::kernels
