#pragma once
// The device of a rank that is not the driver: holds its rows of every shared matrix and computes what is ordered.

#include <memory>
#include <vector>

#include "harness/device/ranks/device_parts.h"
#include "harness/device/ranks/device_share.h"
#include "harness/model/ranks/server.h"

namespace kvarena::device {

class DeviceRank final : public RankDevice {
 public:
  /// Uploads its share of the weights. Throws UserError as load_device_weights() does.
  DeviceRank(const ModelConfig& config, const Checkpoint& checkpoint, kernels::DType dtype, const Share& share);

  void meet(RankChannel& channel) override;
  void compute(int64_t part, int64_t rows) override;

 private:
  /// From the driver.
  [[nodiscard]] const float* input(int64_t count);
  /// This rank's outputs, to the driver.
  void answer(const DeviceProjection& w, const float* x, int64_t rows);
  void compute(const DeviceProjection& w, int64_t rows);
  void compute(const DeviceDense& w, int64_t rows);

  Share share_;
  DeviceWeights weights_;
  std::vector<DevicePart> parts_;
  kernels::CudaQueue queue_;
  int64_t moves_ = 0;
  Workspace input_;
  Workspace reply_;
  std::unique_ptr<DeviceShare> products_;  // since the ranks have met
};

}  // namespace kvarena::device
