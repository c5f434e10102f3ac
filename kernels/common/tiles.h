#pragma once
// The tile registers of AMX: eight of 16 rows of 64 bytes. A thread enters before it uses them and leaves when it is
// done, since threads that hold tiles are switched slower and keep their core from sleeping.
//
// Written as assembly, not with the compiler's intrinsics: those of GCC do not say that they read memory. A build with
// KVARENA_EMULATED_TILES takes the same functions from the emulator of the tests.

#if defined(KVARENA_EMULATED_TILES)
#include <emulated_tiles.h>
#else

#include <cstdint>

namespace kvarena::kernels {
namespace {

/// Operand of `ldtilecfg`: palette 1, every tile of 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

[[maybe_unused]] inline void enter_tiles() {
  static constexpr TileShapes kShapes;
  asm volatile("ldtilecfg %0" ::"m"(kShapes));
}
[[maybe_unused]] inline void leave_tiles() { asm volatile("tilerelease"); }

template <int TILE>
[[gnu::always_inline]] inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(TILE));
}
/// Loads row i from p + i * stride; stride in bytes.
template <int TILE>
[[gnu::always_inline]] inline void load_tile(const void* p, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(TILE) : "memory");
}
/// Stores row i to p + i * stride; stride in bytes.
template <int TILE>
[[gnu::always_inline]] inline void store_tile(void* p, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(TILE) : "memory");
}
/// C [16, 16] f32 += A [16, 32] bf16 * B [32, 16] bf16, of which B has two rows side by side: [16][16][2]. The products
/// of even and of odd columns of A are summed apart, in ascending order, fused, from zero; C takes their sum. Rounds to
/// nearest even whatever the thread's mode; denormal numbers, read or made, are zero.
template <int C, int A, int B>
[[gnu::always_inline]] inline void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}

}  // namespace
}  // namespace kvarena::kernels

#endif
