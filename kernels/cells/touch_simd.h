#pragma once
// Per-path internal: which cells a list of entries touches, and dot products of query rows with key cells.

#include "kernels/cells/cells.h"
#include "kernels/common/pairs_simd.h"

namespace kvarena::kernels {

/// Listed entries that lie in one cell: list positions position .. position+count-1 (relative to a base).
struct Touch {
  int64_t cell;
  int32_t position, count;
};

namespace {

/// Cells behind list positions base+begin .. base+end-1; base is a multiple of 16. Without an index the first touch
/// begins at the cell's first lane and every touch is a whole cell, also the last; with one, a touch begins at the
/// cell's first listed entry at or after the base, even if that is before `begin`: where a touch begins never depends
/// on `begin`.
[[maybe_unused]] int find_touches(const int32_t* index, int64_t base, int64_t begin, int64_t end, Touch* touches) {
  int n = 0;
  if (index == nullptr) {
    for (int64_t p = begin / kCell * kCell; p < end; p += kCell) {
      touches[n++] = {(base + p) / kCell, static_cast<int32_t>(p), kCell};
    }
    return n;
  }
  int64_t p = begin;
  while (p > 0 && p < end && index[base + p - 1] / kCell == index[base + p] / kCell) --p;
  while (p < end) {
    const int64_t cell = index[base + p] / kCell;
    int64_t stop = p + 1;
    while (stop < end && index[base + stop] / kCell == cell) ++stop;
    touches[n++] = {cell, static_cast<int32_t>(p), static_cast<int32_t>(stop - p)};
    p = stop;
  }
  return n;
}

/// Stores the listed lanes of a cell to to[0 .. count-1]; a whole cell is one store.
KVARENA_INLINE void store_listed(float* to, const int32_t* index, int64_t base, const Touch& touch, F32x16 lanes) {
  if (touch.count == kCell) return store16(to, lanes);
  alignas(64) float all[kLanes];
  store16(all, lanes);
  for (int32_t i = 0; i < touch.count; ++i) to[i] = all[index[base + touch.position + i] % kCell];
}

/// Entries in bf16 that are multiplied two channels or two entries at a time, by what was rounded to bf16 too.
struct RoundedBF16 {
  using Stored = uint16_t;
};
template <class T>
constexpr bool kRounded = false;
template <>
constexpr bool kRounded<RoundedBF16> = true;

/// Sixteen entries' channel at p, or that and the next one.
template <class T>
KVARENA_INLINE F32x16 load_channels(T, const typename T::Stored* p) {
  return load16(T{}, p);
}
KVARENA_INLINE F32x16 load_channels(RoundedBF16, const uint16_t* p) { return load_pairs(p); }

/// acc[i][j] = sum over channels c ascending of q[i][c] * keys[j][c][lane], by fused multiply-add from 0; RoundedBF16
/// takes pairs of channels (pairs_simd.h), and q as pairs. Meanwhile the cells at `next` are fetched (FETCH): a cell is
/// too short a stream for the hardware to foresee the one after it.
template <class T, int ROWS, int CELLS, bool FETCH>
KVARENA_INLINE void dot_tile(const float* const* rows, const typename T::Stored* const* cells,
                             const typename T::Stored* const* next, int64_t head_dim, F32x16 (&acc)[ROWS][CELLS]) {
  const float* q[ROWS];
  const typename T::Stored *keys[CELLS], *ahead[CELLS];
  for (int i = 0; i < ROWS; ++i) q[i] = rows[i];
  for (int j = 0; j < CELLS; ++j) keys[j] = cells[j];
  for (int j = 0; j < CELLS; ++j) ahead[j] = next[j];
  F32x16 sum[ROWS][CELLS];
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) sum[i][j] = zero16();
  }
  const auto channel = [&](int64_t c) __attribute__((always_inline)) {  // or the pair from there on
    F32x16 k[CELLS];
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) k[j] = load_channels(T{}, keys[j] + c * kCell);
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; ++i) {
      const F32x16 qc = set16(q[i][kRounded<T> ? c / 2 : c]);
#pragma GCC unroll 4
      for (int j = 0; j < CELLS; ++j)
        sum[i][j] = kRounded<T> ? add_pair(sum[i][j], qc, k[j]) : fma(qc, k[j], sum[i][j]);
    }
  };
  for (int64_t c = 0; c < head_dim; c += 2) {  // two channels are one or two cache lines
#pragma GCC unroll 4
    for (int j = 0; FETCH && j < CELLS; ++j) {
      fetch(ahead[j] + c * kCell);
      if (sizeof(typename T::Stored) == 4) fetch(ahead[j] + (c + 1) * kCell);
    }
    channel(c);
    if (kRounded<T>) continue;
    asm volatile("" ::: "memory");  // else the second channel's loads move up and sums spill
    channel(c + 1);
  }
#pragma GCC unroll 6
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < CELLS; ++j) acc[i][j] = sum[i][j];
  }
}

}  // namespace
}  // namespace kvarena::kernels
