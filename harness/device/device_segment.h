#pragma once
// Copies of the segments in front of a layer's runs: stored numbers, attended as they lie or dequantised first.

#include <memory>
#include <string>
#include <vector>

#include "harness/cache/attention_plan.h"
#include "harness/device/device_dequant_ops.h"
#include "harness/device/head_maps.h"
#include "harness/device/stored_runs.h"

namespace kvarena::device {

/// Memory that dequantising takes, which segments share one after the other.
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

/// The stored numbers of a segment of a cache: the one item of its plan.
[[nodiscard]] AttentionItem stored_item(const Segment& segment);
/// Whether the device holds an item among the layer's own runs, as entries in the cache's type, appended to.
[[nodiscard]] bool in_runs(const AttentionItem& item);

/// A copy of what an item stores, and of what its steps need. It follows its segment by what is new.
class DeviceSegment {
 public:
  /// Why the device cannot hold an item that is not in_runs(), in words; empty when it can.
  [[nodiscard]] static std::string unsupported_reason(const AttentionItem& item);
  /// Uploads, complete after uploads.finish().
  DeviceSegment(const AttentionItem& item, DequantShared& shared, UploadBatch& uploads);

  /// The number by which plans know it (AttentionItem::stored).
  [[nodiscard]] uint64_t version() const { return version_; }
  /// Uploads what the item has got since; whether there was anything.
  bool follow(const AttentionItem& item, UploadBatch& uploads);

  [[nodiscard]] int64_t entries() const { return stored_->entries(); }
  /// [kv_heads] stored numbers, for attend_cuda(); until the next follow().
  [[nodiscard]] const std::vector<kernels::HeadRun>& runs() const { return stored_->runs(); }
  [[nodiscard]] DType dtype() const { return stored_->dtype(); }
  /// Maps that queries take before they attend, and that attended values lose; null for none. Entries with steps are
  /// freed of theirs by the last one.
  [[nodiscard]] const HeadMaps* key_maps() const { return key_maps_.get(); }
  [[nodiscard]] const HeadMaps* value_maps() const { return value_maps_.get(); }
  [[nodiscard]] bool is_mapped() const { return key_maps_ != nullptr || value_maps_ != nullptr; }
  [[nodiscard]] bool has_steps() const { return !keys_.empty() || !values_.empty(); }
  /// Whether the other entries of its segment come through views, so that only passes with one attend to the layer.
  [[nodiscard]] bool needs_view() const { return needs_view_; }
  /// Dequantises entries first .. first+count-1, of which `room` holds as many; their runs [kv_heads] in float32 are
  /// there until the next call.
  [[nodiscard]] std::vector<kernels::HeadRun> dequantize(int64_t first, int64_t count, const DequantWorkspace& room,
                                                         kernels::CudaScratch& scratch,
                                                         kernels::CudaStream stream) const;
  [[nodiscard]] int64_t bytes() const;

 private:
  using Steps = std::vector<std::unique_ptr<DeviceDequantOp>>;
  void dequantize(kernels::CellKind kind, int64_t first, RowsAtWork work, const std::vector<kernels::HeadRun>& to,
                  kernels::CudaScratch& scratch, kernels::CudaStream stream) const;

  uint64_t version_;
  LayerShape shape_;
  bool needs_view_;
  std::shared_ptr<StoredRuns> stored_;  // layers may share it
  HeadMapsPtr key_maps_, value_maps_;
  int64_t stepped_ = 0;  // entries that the steps know
  Steps keys_, values_;
};

}  // namespace kvarena::device
