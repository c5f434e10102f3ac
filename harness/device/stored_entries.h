#pragma once
// Entries in 16 or 32 bits on the device from which others are put together; layers may share them.

#include <vector>

#include "harness/cache/entry_segment.h"
#include "harness/device/upload_batch.h"
#include "kernels/cells/cells.h"
#include "kernels/entry_rows/entry_rows_cuda.h"

namespace kvarena::device {

/// A copy of a dense segment that only ever grows.
class StoredEntries {
 public:
  explicit StoredEntries(const LayerShape& shape) : shape_(shape) {}
  /// Takes over what the segment has got since; there after uploads.finish().
  void follow(const EntrySegment& segment, UploadBatch& uploads);
  /// Entries `first` and those behind it, as numbers.
  void load(kernels::CellKind kind, int64_t first, const kernels::EntryRows& to, kernels::CudaScratch& scratch,
            kernels::CudaStream stream) const;
  [[nodiscard]] int64_t bytes() const { return memory_.bytes(); }

 private:
  [[nodiscard]] kernels::Cells cells(int64_t kv_head, kernels::CellKind kind) const;

  LayerShape shape_;
  kernels::CudaBuffer memory_;  // [kv_heads][keys, values][room]
  int64_t entries_ = 0, room_ = 0;
};

}  // namespace kvarena::device
