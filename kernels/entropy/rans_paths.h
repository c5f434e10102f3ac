#pragma once
// Internal: the steps between reading the states and checking the end.

#include "kernels/common/dispatch.h"
#include "kernels/entropy/rans.h"

namespace kvarena::kernels {

struct RansTable {
  /// Decodes up to n steps while at least 16 words are left, advancing `words`; returns the steps done.
  int64_t (*steps)(uint32_t* states, const uint8_t** words, const uint8_t* end, int64_t n, const int16_t* starts,
                   int64_t count, uint8_t* symbols);
};
KVARENA_DECLARE_TABLE(RansTable, rans_table);

}  // namespace kvarena::kernels
