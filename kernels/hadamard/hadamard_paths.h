#pragma once
// Internal: one row, one block of lanes.

#include "kernels/common/dispatch.h"
#include "kernels/hadamard/hadamard.h"

namespace kvarena::kernels {

struct HadamardTable {
  void (*row)(float* x, int64_t n);
  void (*lanes)(float* x, int64_t n);
};
KVARENA_DECLARE_TABLE(HadamardTable, hadamard_table);

void hadamard_reference(float* x, int64_t n);
void hadamard_lanes_reference(float* x, int64_t n);

}  // namespace kvarena::kernels
