#pragma once
// The tile registers of AMX in plain C++, for processors that have none (kernels/common/tiles.h says what each function
// does). Checked against another emulator's instructions: tests/golden/kernels_tiles.json.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kvarena::kernels {
namespace {

constexpr int64_t kTileRows = 16, kTileBytes = 64;

struct EmulatedTiles {
  bool entered = false;
  alignas(64) unsigned char tile[8][kTileRows * kTileBytes];
};
thread_local EmulatedTiles emulated;

/// A register of a thread that has entered: on a processor the instruction would be undefined elsewhere.
[[gnu::always_inline]] inline unsigned char* tile_memory(int tile) {
  if (!emulated.entered) {
    std::fputs("a tile was used before enter_tiles() or after leave_tiles()\n", stderr);
    std::abort();
  }
  return emulated.tile[tile];
}

/// Denormal numbers as zeros of their sign.
[[gnu::always_inline]] inline float flushed(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits & 0x7f800000U) == 0 ? bits & 0x80000000U : bits;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
/// The bf16 in the lower half of `bits`.
[[gnu::always_inline]] inline float widened_bf16(uint32_t bits) {
  bits <<= 16;
  float x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return flushed(x);
}

[[maybe_unused]] inline void enter_tiles() {
  emulated.entered = true;
  std::memset(emulated.tile, 0, sizeof emulated.tile);
}
[[maybe_unused]] inline void leave_tiles() { emulated.entered = false; }

template <int TILE>
void zero_tile() {
  std::memset(tile_memory(TILE), 0, kTileRows * kTileBytes);
}
template <int TILE>
void load_tile(const void* p, int64_t stride) {
  unsigned char* tile = tile_memory(TILE);
  for (int64_t i = 0; i < kTileRows; ++i) {
    std::memcpy(tile + i * kTileBytes, static_cast<const char*>(p) + i * stride, kTileBytes);
  }
}
template <int TILE>
void store_tile(void* p, int64_t stride) {
  const unsigned char* tile = tile_memory(TILE);
  for (int64_t i = 0; i < kTileRows; ++i) {
    std::memcpy(static_cast<char*>(p) + i * stride, tile + i * kTileBytes, kTileBytes);
  }
}

template <int C, int A, int B>
void multiply_tiles() {
  float c[16][16];
  uint32_t a[16][16], b[16][16];  // two bf16 each
  std::memcpy(c, tile_memory(C), sizeof c);
  std::memcpy(a, tile_memory(A), sizeof a);
  std::memcpy(b, tile_memory(B), sizeof b);
  for (int m = 0; m < 16; ++m) {
    float even[16] = {}, odd[16] = {};
    for (int k = 0; k < 16; ++k) {
      const float a_even = widened_bf16(a[m][k]), a_odd = widened_bf16(a[m][k] >> 16);
      for (int n = 0; n < 16; ++n) {
        even[n] = flushed(__builtin_fmaf(a_even, widened_bf16(b[k][n]), even[n]));
        odd[n] = flushed(__builtin_fmaf(a_odd, widened_bf16(b[k][n] >> 16), odd[n]));
      }
    }
    for (int n = 0; n < 16; ++n) c[m][n] = flushed(flushed(c[m][n]) + flushed(even[n] + odd[n]));
  }
  std::memcpy(tile_memory(C), c, sizeof c);
}

}  // namespace
}  // namespace kvarena::kernels
