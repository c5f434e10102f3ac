#pragma once
// attention_sums.h on a CUDA device, over probabilities that lie there (column_sums_cuda.h writes them, a token each).
// Everything is queued on `stream`. Sums grow token by token, ascending, and of a token head by head, in float32: a
// prompt handed over in pieces has the bits of one call. One thread has one list position of one kv head.

#include "kernels/attention/query_sums.h"
#include "kernels/cuda/device.h"

namespace kvarena::kernels {

/// Probabilities of consecutive tokens, 0 for entries that a token does not see.
struct DeviceProbabilities {
  const float* data = nullptr;  // [tokens, q_heads, entries], on the device
  int64_t tokens = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t entries = 0;
  int64_t position = 0;  // position of the first token, which sees the entries up to its own
};

/// sums [kv_heads, 2, stride].
void add_moments_cuda(const DeviceProbabilities& rows, float* sums, int64_t stride, CudaStream stream);

/// words [kv_heads, queries.words(), stride].
void mark_ignored_cuda(const DeviceProbabilities& rows, const IgnoredQueries& queries, float* words, int64_t stride,
                       CudaStream stream);

/// The table of gumbel_noise.h on the device, from its first use on.
class DeviceGumbelTable {
 public:
  [[nodiscard]] const float* data(CudaStream stream);

 private:
  CudaBuffer table_;
};

/// sums [kv_heads, stride]. Powers and totals are those of the device's functions: within rounding of the host's.
void add_perturbed_cuda(const DeviceProbabilities& rows, const PerturbedSum& what, float* sums, int64_t stride,
                        DeviceGumbelTable& table, CudaScratch& scratch, CudaStream stream);

}  // namespace kvarena::kernels
