#pragma once
// Internal: one row of each operation.

#include "kernels/common/dispatch.h"
#include "kernels/elementwise/elementwise.h"

namespace kvarena::kernels {

struct ElementwiseTable {
  void (*rms_norm)(const float* x, const float* weight, float* y, int64_t n, float eps);
  void (*silu_mul)(const float* gate, const float* up, float* out, int64_t n);
  void (*gelu_mul)(const float* gate, const float* up, float* out, int64_t n);
  void (*sigmoid_mul)(const float* gate, const float* up, float* out, int64_t n);
  void (*add_into)(float* x, const float* y, int64_t n);
  void (*softmax)(float* x, int64_t n, float scale, const float* sink);
  void (*widen)(const void* from, DType dtype, int64_t count, float* to);
};
KVARENA_DECLARE_TABLE(ElementwiseTable, elementwise_table);

extern const ElementwiseTable elementwise_reference;

}  // namespace kvarena::kernels
