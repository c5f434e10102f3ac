#pragma once
// How much attention entries received from a pass's queries, summed up on the device for those who watch on the host.

#include <cstdint>

#include "harness/device/device_cache.h"

namespace kvarena::device {

/// Queries of the newest tokens of a cache, on the host.
struct WatchedQueries {
  int64_t layer = 0;
  int64_t count = 0;
  const float* q = nullptr;  // [count, q_heads, head_dim of the cache], tokens at distance q_stride
  int64_t q_stride = 0;
  const float* lse = nullptr;  // [count, q_heads]
};

class AttentionSums {
 public:
  /// Adds to `sums`, on the host, what the queries gave to each entry of the layer (kernels/column_sums); waits for it.
  /// Query by query in order: a prompt in pieces has the bits of one pass. Rows must have room for every head's
  /// entries. Cost: queries go up again, sums up and down.
  void add(const DeviceCache& cache, const WatchedQueries& queries, const kernels::ProbabilitySums& sums,
           kernels::CudaStream stream);

 private:
  kernels::CudaBuffer queries_;  // q as it lies on the host, then lse
  kernels::CudaBuffer sums_;     // [q_heads, stride]
  kernels::CudaScratch scratch_;
};

}  // namespace kvarena::device
