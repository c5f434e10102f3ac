#pragma once
// Inner products of a few queries with everything that lies in cells of keys: exact scores, scores of centroids and
// landmarks, scores over the leading channels of rotated keys.
//
//   scores[r * score_stride + e] = sum over channels c ascending by fused multiply-add from 0 of q[r][c] * key[e][c]
//
// for query rows r (row r at q + r * q_stride) and entries e = 0 .. entries-1; nothing behind them is written. No scale
// is applied. keys.head_dim may be any positive number of channels here. These are the bits that attention multiplies
// by its scale. (The reference path accumulates in double.)
//
// Cost: 2 * rows * entries * head_dim flops; keys are read once per 4 rows.

#include <cstdint>

#include "kernels/cells/cells.h"

namespace kvarena::kernels {

void cell_scores(const float* q, int64_t rows, int64_t q_stride, const Cells& keys, int64_t entries, float* scores,
                 int64_t score_stride);

}  // namespace kvarena::kernels
