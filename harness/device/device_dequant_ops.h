#pragma once
// The steps of harness/cache/dequant_program.h on a device.

#include <map>
#include <memory>
#include <vector>

#include "harness/cache/dequant_program.h"
#include "harness/device/head_maps.h"
#include "harness/device/upload_batch.h"
#include "kernels/entry_rows/entry_rows_cuda.h"

namespace kvarena::device {

/// Angles of positions 0, 1, .. as the host computes them.
class RotationTable {
 public:
  explicit RotationTable(std::vector<double> frequencies) : frequencies_(std::move(frequencies)) {}
  /// Reaches up to `position` from now on.
  void reach(int32_t position);
  [[nodiscard]] int64_t half() const { return std::ssize(frequencies_); }
  [[nodiscard]] const float* cos() const { return static_cast<const float*>(memory_.data()); }
  [[nodiscard]] const float* sin() const { return cos() + rows_ * half(); }

 private:
  std::vector<double> frequencies_;
  kernels::CudaBuffer memory_;  // cos, then sin [rows, half]
  int64_t rows_ = 0;
};

/// Data that the layers of a cache share.
struct DequantShared {
  HeadMapStore maps;
  std::map<std::vector<double>, std::shared_ptr<RotationTable>> rotations;
  std::map<uint64_t, std::weak_ptr<class StoredRuns>> stored;  // by the version of what they are copies of

  [[nodiscard]] std::shared_ptr<RotationTable> rotation(const std::vector<double>& frequencies);
};

/// Rows under work. A step that cannot work in place leaves its result in `spare`, and the two change places.
struct RowsAtWork {
  kernels::EntryRows rows;
  float* spare = nullptr;  // as large
};

/// One step, with a copy of what it needs.
class DeviceDequantOp {
 public:
  virtual ~DeviceDequantOp() = default;
  /// Takes over what belongs to entries before .. after-1, said by the same step of the same segment; there after
  /// uploads.finish().
  virtual void follow(const DequantOp& /*op*/, int64_t /*before*/, int64_t /*after*/, UploadBatch& /*uploads*/) {}
  /// On the rows of entries `first` and those behind it.
  virtual void apply(RowsAtWork& work, int64_t first, kernels::CudaScratch& scratch,
                     kernels::CudaStream stream) const = 0;
  [[nodiscard]] virtual int64_t bytes() const { return 0; }
};

/// `op`: a step of a segment with rows of heads * head_dim channels.
[[nodiscard]] std::unique_ptr<DeviceDequantOp> make_step(const DequantOp& op, int64_t heads, int64_t head_dim,
                                                         DequantShared& shared);

}  // namespace kvarena::device
