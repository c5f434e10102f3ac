#pragma once
// The second half of a layer on a device: one network for every token, or experts that a router chooses.

#include <cstdint>
#include <vector>

#include "harness/device/device_weights.h"
#include "harness/device/workspace.h"
#include "kernels/elementwise/elementwise_cuda.h"

namespace kvarena::device {

class DeviceFeedForward {
 public:
  explicit DeviceFeedForward(const ModelConfig& config) : config_(&config) {}

  /// Memory for a pass of `rows` rows; `moves` counts how often some address has changed.
  void make_room(int64_t rows, int64_t& moves);
  /// x [rows, hidden_size] += what a layer makes of `in`, of the same shape. Each row's bits depend on that row alone:
  /// its experts are added by ascending number, then the shared ones. Experts are chosen on the host, which waits for
  /// the stream, so no such layer can be part of a graph.
  void add(const DeviceDense& weights, const float* in, int64_t rows, float* x, kernels::CudaStream stream);
  void add(const DeviceSparse& weights, const float* in, int64_t rows, float* x, kernels::CudaStream stream);

 private:
  /// The rows that visit each expert.
  using Visits = std::vector<std::vector<kernels::WeightedRow>>;

  [[nodiscard]] Visits route(const DeviceSparse& weights, const float* in, int64_t rows, kernels::CudaStream stream);
  void compute(const DeviceDense& weights, const float* in, int64_t rows, float* out, bool add,
               kernels::CudaStream stream);

  const ModelConfig* config_;
  Workspace inner_;          // [rows, 2 * the widest network]
  Workspace router_logits_;  // [rows, experts]
  Workspace gathered_;       // [rows, hidden_size]: the visitors of an expert
  Workspace answers_;        // [rows, hidden_size]: what it answers them
  kernels::CudaScratch lists_;
  std::vector<float> host_logits_;  // [rows, experts]
};

}  // namespace kvarena::device
