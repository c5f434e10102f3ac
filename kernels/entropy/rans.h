#pragma once
// Sixteen interleaved range coders (rANS; Duda, arXiv 1311.2540), each with a static model of its own: the lanes are
// channels, the steps tokens, so that lanes decode side by side.
//
// Probabilities have 12 bits. A lane's state has 32 bits and is kept at 2^16 or above by 16-bit words, which the lanes
// take from one common stream in the order of steps and, within one, of lanes. A block is the 16 states the decoder
// begins with (little-endian u32), then the words (little-endian u16).

#include <cstdint>

namespace kvarena::kernels {

inline constexpr int64_t kRansLanes = 16;
inline constexpr int kRansBits = 12;

/// Bytes that n steps may take at most.
[[nodiscard]] static constexpr int64_t rans_bound(int64_t n) { return kRansLanes * (4 + 2 * n); }

/// Cumulative frequencies starts [symbols + 1][16], 0 .. 4096, in proportion to counts [symbols][16]; a symbol that
/// occurs gets at least 1. A lane without any count gives everything to symbol 0. symbols is at most 256.
void rans_starts(const uint32_t* counts, int64_t symbols, int16_t* starts);

/// Writes the block of symbols [n][16]; returns its bytes, at most rans_bound(n). Every symbol must have a frequency.
int64_t rans_encode(const uint8_t* symbols, int64_t n, const int16_t* starts, uint8_t* out);

/// Reads n steps of a block of exactly `bytes` bytes. Returns whether the block ends where the symbols end and in the
/// state that encoding starts from; anything else is damage. Never reads beyond the block; the symbols written are
/// below `count` whatever the bytes.
[[nodiscard]] bool rans_decode(const uint8_t* data, int64_t bytes, int64_t n, const int16_t* starts, int64_t count,
                               uint8_t* symbols);

}  // namespace kvarena::kernels
