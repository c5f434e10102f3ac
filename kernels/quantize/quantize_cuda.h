#pragma once
// quantize.h on a CUDA device: the same codes, scales and zeros, bit for bit. Rows and what PackedEntries (and its
// codebook) points to lie on the device, codes at multiples of 16 bytes; everything is queued on `stream`.

#include "kernels/cuda/device.h"
#include "kernels/quantize/quantize.h"

namespace kvarena::kernels {

/// encode_rows(); head_dim at most 1024. Cost: rows are read twice (from memory once), codes and meta written once.
void encode_rows_cuda(const PackedEntries& to, int64_t position, int64_t count, const float* rows, int64_t row_stride,
                      CudaStream stream);

/// decode_rows().
void decode_rows_cuda(const PackedEntries& from, int64_t position, int64_t count, float* rows, int64_t row_stride,
                      CudaStream stream);

}  // namespace kvarena::kernels
