#pragma once
// Entries of one layer that are put together on the device before anything attends to them
// (harness/cache/dequant_program.h).

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/cache/segment.h"
#include "harness/device/device_packed_segment.h"
#include "harness/device/device_dequant_ops.h"
#include "harness/device/stored_entries.h"

namespace kvarena::device {

/// Memory that putting entries together takes, which fronts share one after the other.
struct DequantWorkspace {
  int64_t entries = 0;     // at once
  float* rows = nullptr;   // [entries, kv_heads * head_dim]
  float* spare = nullptr;  // the same
  float* cells = nullptr;  // [kv_heads][keys, values] cells of `entries`
  /// Numbers in all of it; entries are a multiple of kernels::kCell.
  [[nodiscard]] static int64_t numbers(int64_t entries, const LayerShape& shape) {
    return 4 * entries * shape.kv_heads * shape.head_dim;
  }
  /// Cut from memory for that many.
  [[nodiscard]] static DequantWorkspace in(float* memory, int64_t entries, const LayerShape& shape);
};

/// A copy of what such a segment stores. It follows its segment by what is new, as DevicePackedSegment does.
class DeviceDequantSegment {
 public:
  /// Why the device cannot put a segment's entries together, in words; empty when it can, or when the segment is none
  /// that is.
  [[nodiscard]] static std::string cannot_hold(const Dequantizable& segment, const LayerShape& shape);
  /// What it uploads is there after uploads.finish().
  DeviceDequantSegment(const Dequantizable& segment, const LayerShape& shape, DequantShared& shared, UploadBatch& uploads);

  /// Of the segment that it is a copy of, as of some time.
  [[nodiscard]] uint64_t version() const { return version_; }
  /// Uploads what the segment has got since; whether there was anything.
  bool follow(const Dequantizable& segment, UploadBatch& uploads);

  [[nodiscard]] int64_t entries() const { return entries_; }
  /// What is stored by itself, where that are codes.
  [[nodiscard]] const DevicePackedSegment* codes() const { return codes_ ? &*codes_ : nullptr; }
  /// Puts entries first .. first+count-1 (of which `room` holds as many) together; their runs [kv_heads] in float32 are
  /// there until the next call.
  [[nodiscard]] std::vector<kernels::HeadRun> restore(int64_t first, int64_t count, const DequantWorkspace& room,
                                                      kernels::CudaScratch& scratch, kernels::CudaStream stream) const;
  [[nodiscard]] int64_t bytes() const;

 private:
  using Steps = std::vector<std::unique_ptr<DeviceDequantOp>>;
  void restore(kernels::CellKind kind, int64_t first, RowsAtWork work, const std::vector<kernels::HeadRun>& to,
               kernels::CudaScratch& scratch, kernels::CudaStream stream) const;
  void load_codes(kernels::CellKind kind, int64_t first, const kernels::EntryRows& to, kernels::CudaScratch& scratch,
                  kernels::CudaStream stream) const;

  uint64_t version_;
  LayerShape shape_;
  int64_t entries_ = 0;
  std::optional<DevicePackedSegment> codes_;
  std::shared_ptr<StoredEntries> stored_;  // in their place
  Steps keys_, values_;
};

}  // namespace kvarena::device
