#pragma once
// Rotary position embedding, half-split: channel c in 0 .. rotary/2-1 is rotated with channel c + rotary/2,
//   x'[c] = x[c] cos - x[c + rotary/2] sin,   x'[c + rotary/2] = x[c + rotary/2] cos + x[c] sin.
// Channels from `rotary` on stay as they are. Each output is mul then fused multiply-add in float32; results do not
// depend on batch or threads.

#include <cstdint>

#include "kernels/cells/cells.h"

namespace kvarena::kernels {

/// cos and sin [count, half] of position * inv_freq[i], times magnitude (YaRN's attention factor; 1 for others). An
/// angle is the float32 product of float32 factors, as in transformers and the engines that follow it: exact angles
/// move float32 logits by 4e-4 at 1,800 tokens. Position may be negative: a delta for re-rotation.
void rotation_tables(const int32_t* positions, int64_t count, const double* inv_freq, int64_t half, float magnitude,
                     float* cos, float* sin);

struct RotateArgs {
  float* x = nullptr;  // [tokens, heads, head_dim], rotated in place
  int64_t tokens = 0, heads = 0, head_dim = 0;
  int64_t token_stride = 0, head_stride = 0;  // in elements
  int64_t rotary = 0;                         // even, <= head_dim
  const float* cos = nullptr;                 // [tokens, rotary / 2]
  const float* sin = nullptr;                 // [tokens, rotary / 2]
};

/// Rotates queries or fresh keys.
void rotate(const RotateArgs& args);

/// Rotates stored keys (kind must be keys) entry..entry+count-1 by further angles: cos, sin [count, half] with row
/// stride table_stride (0: the same angle for all entries, the case of moving a chunk). half = rotary / 2. Computed in
/// float32 and rounded back to the stored dtype.
void rotate_cells(const Cells& keys, int64_t entry, int64_t count, const float* cos, const float* sin, int64_t half,
                  int64_t table_stride);

/// Rotates whole cells first .. first+cells-1, with the bits of rotate_cells(), by tables that lie as cells do: cos,
/// sin [cells, half, 16].
void rotate_whole_cells(const Cells& keys, int64_t first, int64_t cells, const float* cos, const float* sin,
                        int64_t half);

/// Turns n lengths and as many angles in place to coordinates, length cos(angle) and length sin(angle): cosine and sine
/// within 2e-7 up to an angle of 1,000, equal bits on the SIMD paths.
void from_polar(float* lengths, float* angles, int64_t n);

}  // namespace kvarena::kernels
