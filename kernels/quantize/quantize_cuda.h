#pragma once
// quantize.h on a CUDA device: the same codes, scales and zeros, bit for bit. Rows and what PackedEntries (and its
// codebook) points to lie on the device, codes at multiples of 16 bytes; everything is queued on `stream`.

#include <optional>
#include <span>

#include "kernels/cuda/device.h"
#include "kernels/quantize/quantize.h"

namespace kvarena::kernels {

/// encode_rows() of one head.
struct RowEncode {
  PackedEntries to;
  int64_t position = 0, count = 0;
  const float* rows = nullptr;  // [count, head_dim]
  int64_t row_stride = 0;
};
/// Handles many heads in one call, of any formats; head_dim at most 1024. Cost: rows are read twice (from memory once),
/// codes and meta written once.
void encode_rows_cuda(std::span<const RowEncode> items, CudaScratch& scratch, CudaStream stream);

/// gather_packed_values() of one head, into other memory than `from`.
struct PackedGather {
  PackedEntries from;
  const int32_t* index = nullptr;  // [count], on the device
  int64_t count = 0;
  PackedEntries to;
  int64_t position = 0;
};
/// Handles many heads in one call.
void gather_packed_values_cuda(std::span<const PackedGather> items, CudaScratch& scratch, CudaStream stream);

/// decode_rows() of one head.
struct RowDecode {
  PackedEntries from;
  int64_t position = 0, count = 0;
  float* rows = nullptr;  // [count, head_dim]
  int64_t row_stride = 0;
};
/// Handles many heads in one call. With `added` what the codes say is not written but added, times that factor, fused.
void decode_rows_cuda(std::span<const RowDecode> items, CudaScratch& scratch, CudaStream stream,
                      std::optional<float> added = std::nullopt);

}  // namespace kvarena::kernels
