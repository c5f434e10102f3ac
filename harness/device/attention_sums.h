#pragma once
// How much attention entries received from a pass's queries, summed up on the device for those who watch on the host.

#include <cstdint>

#include "harness/device/device_cache.h"

namespace kvarena::device {

class AttentionSums {
 public:
  /// Adds to `sums`, on the host, what queries gave to each entry of a layer that is not packed (kernels/column_sums);
  /// `causal`: they are those of the cache's newest tokens. Waits for it. lse [q_len, q_heads] and the queries are on
  /// the host.
  /// Query by query in order: a prompt in pieces has the bits of one pass. Rows must have room for every head's
  /// entries. Cost: queries go up again, sums up and down.
  void add(const DeviceCache& cache, int64_t layer, const LayerQueries& queries, bool causal, const float* lse,
           const kernels::ProbabilitySums& sums, kernels::CudaStream stream);

 private:
  kernels::CudaBuffer queries_;  // q as it lies on the host, then lse
  kernels::CudaBuffer sums_;     // [q_heads, stride]
  kernels::CudaScratch scratch_, lists_;
};

}  // namespace kvarena::device
