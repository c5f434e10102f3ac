#pragma once
// Entries of a layer that stay on the device while the others behind them come when they are chosen.

#include <vector>

#include "harness/cache/low_rank_segment.h"
#include "harness/device/upload_batch.h"

namespace kvarena::device {

/// A copy of those that a low-rank segment keeps exactly. The others are brought by choices (HostSelector), so that only
/// passes that choose may attend to such a layer.
class DevicePinnedSegment {
 public:
  /// What it uploads is there after uploads.finish().
  DevicePinnedSegment(const LowRankSegment& segment, UploadBatch& uploads);

  /// Of the segment that it is a copy of, as of some time.
  [[nodiscard]] uint64_t version() const { return version_; }
  /// [kv_heads], in the cache's type.
  [[nodiscard]] const std::vector<kernels::HeadRun>& runs() const { return runs_; }
  [[nodiscard]] int64_t bytes() const { return memory_.bytes(); }

 private:
  uint64_t version_;
  kernels::CudaBuffer memory_;  // [kv_heads][keys, values]
  std::vector<kernels::HeadRun> runs_;
};

}  // namespace kvarena::device
