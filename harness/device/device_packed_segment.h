#pragma once
// Packed entries of one layer on the device, in front of what a cache keeps in 16 or 32 bits.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cache/quantized_segment.h"
#include "harness/device/head_maps.h"
#include "harness/device/upload_batch.h"
#include "kernels/attention/attention.h"
#include "kernels/cuda/device.h"

namespace kvarena::device {

/// What a packed segment of the host holds, as it lies there, codebooks included. Packing only ever appends, so a copy
/// follows its segment by what is new, and by the values that are not packed yet.
class DevicePackedSegment {
 public:
  /// Why the device cannot attend to a segment, in words; empty when it can.
  [[nodiscard]] static std::string cannot_hold(const QuantizedSegment& segment);
  /// What it uploads is there after uploads.finish().
  DevicePackedSegment(const QuantizedSegment& segment, HeadMapStore& maps, UploadBatch& uploads);

  /// Of the segment that it is a copy of, as of some time.
  [[nodiscard]] uint64_t version() const { return version_; }
  /// Uploads what the segment has got since; whether there was anything.
  bool follow(const QuantizedSegment& segment, UploadBatch& uploads);

  /// [kv_heads], for attend_cuda(); until the next follow().
  [[nodiscard]] const std::vector<kernels::HeadRun>& runs() const { return runs_; }
  /// What queries take before they attend, and what is taken from what they attended; null for nothing.
  [[nodiscard]] const HeadMaps* key_maps() const { return key_maps_.get(); }
  [[nodiscard]] const HeadMaps* value_maps() const { return value_maps_.get(); }
  [[nodiscard]] bool is_mapped() const { return key_maps_ != nullptr || value_maps_ != nullptr; }
  [[nodiscard]] int64_t bytes() const { return memory_.bytes(); }

 private:
  void make_room(int64_t entries, int64_t recent);
  /// Points everything into `base`, or nowhere; returns the bytes that takes.
  int64_t lay_out(char* base);

  uint64_t version_;
  HeadMapsPtr key_maps_, value_maps_;
  kernels::Cells recent_;                              // shape of values that are not packed
  int64_t entries_ = 0, packed_values_ = 0;            // that were uploaded
  int64_t room_ = 0, recent_room_ = 0;                 // entries, and values that are not packed
  kernels::CudaBuffer memory_;                         // [kv_heads][keys, values, values that are not packed]
  std::vector<kernels::PackedEntries> keys_, values_;  // [kv_heads]
  std::vector<kernels::HeadRun> runs_;                 // [kv_heads], which point to them
};

}  // namespace kvarena::device
