#pragma once
// How much attention entries received from a pass's queries, summed up on the device for those who watch on the host.

#include <cstdint>
#include <span>

#include "harness/device/device_cache.h"
#include "kernels/attention_sums/attention_sums_cuda.h"

namespace kvarena::device {

/// Queries, denominators lse [q_len, q_heads] and sums are on the host: queries go up again, sums up and down, and a
/// call waits for all of it, on the default stream. Entries must be there. Sums grow query by query in order: a prompt
/// in pieces has the bits of one pass.
class AttentionSums {
 public:
  /// Entries on the device.
  struct Entries {
    const LayerShape& shape;
    std::vector<kernels::HeadRun> runs;             // [kv_heads], without indexes
    std::vector<std::span<const int32_t>> lists{};  // [kv_heads], on the host: these alone; empty: all
  };
  /// Adds to sums [q_heads] rows, `stride` apart, what queries gave to each entry (kernels/column_sums). `causal`: the
  /// runs end with the queries' own.
  void add(Entries entries, const LayerQueries& queries, bool causal, const float* lse, float* sums, int64_t stride);
  /// Adds up all that is listed. The queries are those of the newest tokens of a full cache.
  void add(const DeviceCache& cache, int64_t layer, const LayerQueries& queries, const float* lse,
           std::span<const kernels::QuerySum> sums);

 private:
  struct Asked;
  struct Growing;

  [[nodiscard]] Asked upload(const LayerShape& shape, const LayerQueries& queries, const float* lse);
  void list(Entries& entries);
  [[nodiscard]] kernels::DeviceProbabilities rows_of(const DeviceCache& cache, int64_t layer, const Asked& asked,
                                                     int64_t first, int64_t count);
  void add(const kernels::DeviceProbabilities& rows, const Growing& sum);

  kernels::CudaBuffer queries_;  // q as it lies on the host, then lse
  kernels::CudaBuffer sums_;     // of all that grows
  kernels::CudaBuffer rows_;     // probabilities of some tokens
  kernels::DeviceGumbelTable noise_;
  kernels::CudaScratch scratch_, lists_;
};

}  // namespace kvarena::device
