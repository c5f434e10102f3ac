#pragma once
// A codec's linear maps (harness/cache/row_transform.h) as matrices on the device.

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "harness/cache/row_transform.h"
#include "kernels/matmul/matmul_cuda.h"

namespace kvarena::device {

/// A matrix of each kv head, which all query heads of its group take: y = matrix * x.
class HeadMaps {
 public:
  enum class Use : uint8_t {
    queries,   // what queries take before they meet mapped keys
    attended,  // what takes the map from attended values
  };
  HeadMaps(const RowTransform& transform, Use use, int64_t kv_heads, int64_t head_dim);

  /// From x [rows, q_heads, head_dim] with x_stride between rows, to y [rows, q_heads, head_dim].
  void apply(const float* x, int64_t x_stride, int64_t rows, int64_t q_heads, float* y,
             kernels::CudaStream stream) const;

 private:
  std::vector<kernels::DeviceMatrix> heads_;  // [kv_heads] of [head_dim, head_dim] in float32
};

using HeadMapsPtr = std::shared_ptr<const HeadMaps>;

/// One for each transform and use, however many layers share it.
class HeadMapStore {
 public:
  /// Null for no transform.
  [[nodiscard]] HeadMapsPtr of(const RowTransformPtr& transform, HeadMaps::Use use, int64_t kv_heads, int64_t head_dim);

 private:
  std::map<std::pair<RowTransformPtr, HeadMaps::Use>, HeadMapsPtr> known_;
};

}  // namespace kvarena::device
