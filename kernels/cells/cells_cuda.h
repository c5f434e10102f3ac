#pragma once
// Writing, reading and moving entries of cells on a CUDA device, many heads in one call. Rows, cells and indexes lie on
// the device; everything is queued on `stream`. Bits are those of cells.h.

#include <span>

#include "kernels/cells/cells.h"
#include "kernels/cuda/device.h"

namespace kvarena::kernels {

/// store_rows() of one run of cells.
struct RowStore {
  Cells to;
  int64_t position = 0, count = 0;
  const float* rows = nullptr;  // [count, head_dim]
  int64_t row_stride = 0;
  /// Null, or a number on the device that is added to `position` when the work runs: a recorded step appends further
  /// each time it is launched.
  const int32_t* before = nullptr;
  /// Null, or [count] on the device: row i becomes entry places[i], no two the same; `position` and `before` are
  /// unused.
  const int32_t* places = nullptr;
};
/// The runs must not overlap.
void store_rows_cuda(std::span<const RowStore> stores, CudaScratch& scratch, CudaStream stream);

/// load_rows() of one run of cells, of which keys may have any number of channels.
struct RowLoad {
  Cells from;
  int64_t position = 0, count = 0;
  float* rows = nullptr;  // [count, head_dim]
  int64_t row_stride = 0;
};
void load_rows_cuda(std::span<const RowLoad> loads, CudaScratch& scratch, CudaStream stream);

/// gather_entries() into another run: compaction, or a copy of the listed pages. The target's lanes before `position`
/// and behind the last entry keep their bits.
struct EntryGather {
  Cells from;
  const int32_t* index = nullptr;  // [count], on the device
  int64_t count = 0;
  Cells to;  // other memory than `from`
  int64_t position = 0;
};
void gather_entries_cuda(std::span<const EntryGather> gathers, CudaScratch& scratch, CudaStream stream);

/// Merges entries of two runs: entry i of `to` is entry source[i] of `near`, or ~source[i] of `far` where that is
/// negative. Serves a head that attends to entries most of which lie on the device (`near`) while the rest comes from
/// pinned host memory (`far`). Cells of `far` may be of either kind, whichever `near` and `to` are: keys that lie entry
/// by entry are read over a bus in pieces of whole entries. Lanes behind the last entry keep their bits.
struct EntryMerge {
  Cells near, far;
  const int32_t* source = nullptr;  // [count], on the device; null: entry i of `far`
  int64_t count = 0;
  Cells to;  // other memory than `near` and `far`
};
void merge_entries_cuda(std::span<const EntryMerge> merges, CudaScratch& scratch, CudaStream stream);

}  // namespace kvarena::kernels
