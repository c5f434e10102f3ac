#pragma once
// Dequantisation on the host: what an item stores becomes keys and values by the steps of its program, a chunk at a
// time, in scratch that stays in the processor's cache.

#include "harness/cache/attention_plan.h"

namespace kvarena {

/// Entries first .. first+count-1 of all kv heads as f32 cells (kernels/cells); first is a multiple of 16.
struct DequantChunk {
  int64_t first = 0, count = 0;
  std::vector<float> keys;    // [kv_heads, cells, head_dim, 16]
  std::vector<float> values;  // [kv_heads, cells, 16, head_dim]
  std::vector<float> spare;   // as large, for steps that cannot work in place
};

/// Channels of each head that an item's cells of a side hold; of values all or none.
[[nodiscard]] int64_t stored_channels(const AttentionItem& item, kernels::CellKind kind);

/// Fills `chunk` with its entries of an item, whose numbers it dequantises.
void dequantize(const AttentionItem& item, DequantChunk& chunk);

/// Rows [count, head_dim] of the numbers that a run stores from entry `first` on: codes decoded, no step taken. `like`:
/// the side, and the type of what is not packed.
void load_stored(kernels::Cells like, const kernels::HeadRun& run, int64_t first, int64_t count, float* rows);

}  // namespace kvarena
