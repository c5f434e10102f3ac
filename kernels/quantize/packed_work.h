#pragma once
// Internal: scratch that unpacking needs.

#include "kernels/quantize/quantize.h"

namespace kvarena::kernels {

/// Code lanes are unpacked in steps of 32 codes.
[[nodiscard]] static constexpr int64_t whole_codes(int64_t n) { return (n + 31) / 32 * 32; }
/// Cells and rows that scores over packed keys handle at a time.
inline constexpr int64_t kPackedCells = 4, kPackedRows = 6;
/// Up to this many rows, codes need not go through memory (where the instruction set has the registers).
inline constexpr int64_t kFusedRows = 4;
/// Cells of values whose weights are rounded to integers under one scale: those with the same number / kIntegerCells.
inline constexpr int64_t kIntegerCells = 4;
/// Floats of such a block's weights, a row and group of channels: twice the cells, the largest, two steps.
inline constexpr int64_t kIntegerWeightFloats = (2 * kIntegerCells + 1) * kCell + 2;
/// Up to kFewRows rows have the weights of kIntegerBlocks such blocks made at once.
inline constexpr int64_t kFewRows = 4, kIntegerBlocks = 4;
/// Floats for the unpacked codes of kPackedCells cells of keys and for their scaled queries.
[[nodiscard]] static constexpr int64_t packed_key_floats(int64_t head_dim) {
  return kPackedCells * (kCell + kPackedRows) * whole_codes(head_dim);
}

}  // namespace kvarena::kernels
