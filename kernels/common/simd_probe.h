#pragma once
// The lane functions of simd.h, callable from tests: what each path makes of one array.

#include <cstdint>

#include "kernels/common/dispatch.h"

namespace kvarena::kernels {

struct SimdProbeTable {
  void (*exp)(const float* x, int64_t count, float* y);  // y[i] = exp(x[i]); count a multiple of 16
  void (*convert)(const float* x, int64_t count, int dtype, void* stored, float* back);  // store, then load
  float (*sum)(const float* x);                                                          // of 16 numbers
  float (*max)(const float* x);                                                          // of 16 numbers
};
KVARENA_DECLARE_TABLE(SimdProbeTable, simd_probe);

}  // namespace kvarena::kernels
