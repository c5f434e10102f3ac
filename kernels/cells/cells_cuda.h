#pragma once
// Writing and moving entries of cells on a CUDA device, many heads in one call. Rows, cells and indexes lie on the
// device; everything is queued on `stream`. Bits are those of cells.h.

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
};
/// The runs must not overlap.
void store_rows_cuda(std::span<const RowStore> stores, CudaScratch& scratch, CudaStream stream);

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

}  // namespace kvarena::kernels
