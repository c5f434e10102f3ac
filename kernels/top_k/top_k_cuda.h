#pragma once
// top_k.h on a CUDA device: the k best of each row, larger score first, among equals the LOWER index; -0 equals 0.

#include <cstdint>

#include "kernels/cuda/device.h"

namespace kvarena::kernels {

/// Row r of scores [n] at scores + r * score_stride; its k chosen indices go to index + r * k in ascending order and
/// chosen[r] becomes k, or -1 where a score is NaN (the row's indices are then not written). All on the device, queued
/// on `stream`; 0 <= k <= n < 2^31.
void top_k_rows_cuda(const float* scores, int64_t rows, int64_t n, int64_t score_stride, int64_t k, int32_t* index,
                     int32_t* chosen, CudaStream stream);

/// Row r's largest score, the first of equals, goes to index[r]; -1 where a score is NaN. n > 0; otherwise as above.
void argmax_rows_cuda(const float* scores, int64_t rows, int64_t n, int64_t score_stride, int32_t* index,
                      CudaStream stream);

}  // namespace kvarena::kernels
