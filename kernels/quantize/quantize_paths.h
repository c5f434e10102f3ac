#pragma once
// Internal: one cell at a time.

#include "kernels/common/dispatch.h"
#include "kernels/quantize/quantize.h"

namespace kvarena::kernels {

struct QuantizeTable {
  void (*decode_cell)(const PackedEntries& from, int64_t cell, float* out);
};
KVARENA_DECLARE_TABLE(QuantizeTable, quantize_table);

}  // namespace kvarena::kernels
