#include "harness/device/stored_entries.h"

#include "harness/device/packed_side.h"
#include "kernels/cells/cells_cuda.h"

namespace kvarena::device {

using kernels::CellKind;
using kernels::Cells;

Cells StoredEntries::cells(int64_t kv_head, CellKind kind) const {
  const int64_t side = 2 * kv_head + (kind == CellKind::keys ? 0 : 1);
  return {
      .kind = kind,
      .dtype = shape_.dtype,
      .head_dim = shape_.head_dim,
      .data = static_cast<char*>(memory_.data()) + side * kernels::cell_bytes(room_, shape_.head_dim, shape_.dtype)};
}

void StoredEntries::follow(const EntrySegment& segment, UploadBatch& uploads) {
  const int64_t entries = segment.entries(0);
  if (entries == entries_) return;
  if (entries > room_) {
    uploads.finish();  // what is on its way goes to the old place
    room_ = grown_capacity(entries);
    entries_ = 0;
    memory_ = kernels::CudaBuffer(2 * shape_.kv_heads * kernels::cell_bytes(room_, shape_.head_dim, shape_.dtype));
  }
  const int64_t begin = kernels::cell_bytes(entries_ / kernels::kCell * kernels::kCell, shape_.head_dim, shape_.dtype);
  const int64_t end = kernels::cell_bytes(entries, shape_.head_dim, shape_.dtype);
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    const kernels::HeadRun run = segment.run(h);
    uploads.add(cells(h, CellKind::keys).data, run.keys, begin, end);
    uploads.add(cells(h, CellKind::values).data, run.values, begin, end);
  }
  entries_ = entries;
}

void StoredEntries::load(CellKind kind, int64_t first, const kernels::EntryRows& to, kernels::CudaScratch& scratch,
                         kernels::CudaStream stream) const {
  std::vector<kernels::RowLoad> loads;
  for (int64_t h = 0; h < to.heads; ++h) {
    loads.push_back({.from = cells(h, kind),
                     .position = first,
                     .count = to.count,
                     .rows = to.x + h * to.head_dim,
                     .row_stride = to.width()});
  }
  kernels::load_rows_cuda(loads, scratch, stream);
}

}  // namespace kvarena::device
