// GGML's quantised blocks to f32. Each function is one block of its format: what lies where, and the arithmetic in the
// order of the reference, because f32 rounding makes the order part of the format. Scales are f16, `d` and `m` (or
// `dmin`) below; K-quants are super-blocks of 256 elements with quantised scales for each 16 or 32 of them.

#include <cstring>

#include "harness/core/error.h"
#include "harness/model/gguf.h"
#include "harness/model/mxfp4.h"
#include "kernels/common/dtype.h"

namespace kvarena {
namespace {

using Bytes = const uint8_t*;

float half_at(Bytes at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return kernels::f16_to_f32(bits);
}

uint32_t word_at(Bytes at) {
  uint32_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

/// d | 16 bytes: element i in the low nibbles, i + 16 in the high ones, offset 8.
void q4_0(Bytes block, float* out) {
  const float d = half_at(block);
  const Bytes nibbles = block + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((nibbles[i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((nibbles[i] >> 4) - 8);
  }
}

/// d m | 16 bytes as in q4_0, without offset.
void q4_1(Bytes block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  const Bytes nibbles = block + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(nibbles[i] & 15) + m;
    out[i + 16] = d * static_cast<float>(nibbles[i] >> 4) + m;
  }
}

/// d | 32 fifth bits | 16 bytes of nibbles, offset 16.
void q5_0(Bytes block, float* out) {
  const float d = half_at(block);
  const uint32_t high = word_at(block + 2);
  const Bytes nibbles = block + 6;
  for (int i = 0; i < 16; ++i) {
    const auto low = static_cast<int>((nibbles[i] & 15) | (((high >> i) & 1) << 4));
    const auto upper = static_cast<int>((nibbles[i] >> 4) | (((high >> (i + 16)) & 1) << 4));
    out[i] = d * static_cast<float>(low - 16);
    out[i + 16] = d * static_cast<float>(upper - 16);
  }
}

/// d m | 32 fifth bits | 16 bytes of nibbles.
void q5_1(Bytes block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  const uint32_t high = word_at(block + 4);
  const Bytes nibbles = block + 8;
  for (int i = 0; i < 16; ++i) {
    const auto low = static_cast<int>((nibbles[i] & 15) | (((high >> i) & 1) << 4));
    const auto upper = static_cast<int>((nibbles[i] >> 4) | (((high >> (i + 16)) & 1) << 4));
    out[i] = d * static_cast<float>(low) + m;
    out[i + 16] = d * static_cast<float>(upper) + m;
  }
}

/// d | 32 signed bytes.
void q8_0(Bytes block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
}

/// The low two bits of element i in Q2_K and Q3_K: 32 bytes carry 128 elements, two bits a plane.
int two_bits(Bytes packed, int i) { return (packed[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3; }

/// 16 bytes of scale (low nibble) and minimum (high nibble) for 16 elements each | 64 bytes of two-bit values | d dmin.
void q2_k(Bytes block, float* out) {
  const Bytes packed = block + 16;
  const float d = half_at(block + 80);
  const float dmin = half_at(block + 82);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(block[i / 16] & 15);
    const float minimum = dmin * static_cast<float>(block[i / 16] >> 4);
    out[i] = scale * static_cast<float>(two_bits(packed, i)) - minimum;
  }
}

/// 32 bytes of third bits | 64 bytes of two-bit values | 12 bytes of six-bit scales, offset 32 | d.
/// Scale j: low four bits in nibble j of the first 8 bytes (low nibbles first), high two in plane j / 4 of the rest.
/// A third bit that is clear subtracts 4.
void q3_k(Bytes block, float* out) {
  const Bytes packed = block + 32;
  const Bytes scales = block + 96;
  const float d = half_at(block + 108);
  float scale[16];
  for (int j = 0; j < 16; ++j) {
    const int low = (scales[j % 8] >> (j / 8 * 4)) & 15;
    const int high = (scales[8 + j % 4] >> (j / 4 * 2)) & 3;
    scale[j] = d * static_cast<float>((low | (high << 4)) - 32);
  }
  for (int i = 0; i < 256; ++i) {
    const bool third = ((block[i % 32] >> (i / 32)) & 1) != 0;
    out[i] = scale[i / 16] * static_cast<float>(two_bits(packed, i) - (third ? 0 : 4));
  }
}

/// Q4_K and Q5_K: 12 bytes of six-bit scales and minima for 32 elements each. The first four scales and minima are
/// the low six bits of bytes 0-3 and 4-7; the others take their low four bits from bytes 8-11 and the high two from
/// the top of bytes 0-7.
struct ScaleAndMinimum {
  int scale;
  int minimum;
};
ScaleAndMinimum six_bits(Bytes packed, int j) {
  if (j < 4) return {packed[j] & 63, packed[j + 4] & 63};
  const Bytes shared = packed + 4 + j;
  return {(*shared & 15) | ((packed[j - 4] >> 2) & 0x30), (*shared >> 4) | ((packed[j] >> 2) & 0x30)};
}

/// d dmin | scales | 128 bytes: 32 bytes carry 64 elements, low nibbles first.
void q4_k(Bytes block, float* out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  const Bytes nibbles = block + 16;
  for (int j = 0; j < 8; ++j) {
    const ScaleAndMinimum packed = six_bits(block + 4, j);
    const float scale = d * static_cast<float>(packed.scale);
    const float minimum = dmin * static_cast<float>(packed.minimum);
    for (int i = 0; i < 32; ++i) {
      const int q = (nibbles[j / 2 * 32 + i] >> (j % 2 * 4)) & 15;
      out[j * 32 + i] = scale * static_cast<float>(q) - minimum;
    }
  }
}

/// Decodes Q5_K: q4_k with 32 bytes of fifth bits before the nibbles; bit j of byte i belongs to element 32 j + i.
void q5_k(Bytes block, float* out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  const Bytes high = block + 16;
  const Bytes nibbles = block + 48;
  for (int j = 0; j < 8; ++j) {
    const ScaleAndMinimum packed = six_bits(block + 4, j);
    const float scale = d * static_cast<float>(packed.scale);
    const float minimum = dmin * static_cast<float>(packed.minimum);
    for (int i = 0; i < 32; ++i) {
      const int q = ((nibbles[j / 2 * 32 + i] >> (j % 2 * 4)) & 15) | (((high[i] >> j) & 1) << 4);
      out[j * 32 + i] = scale * static_cast<float>(q) - minimum;
    }
  }
}

/// 128 bytes of low nibbles (64 bytes carry 128 elements) | 64 bytes of high two bits (32 carry 128) | 16 signed
/// scales | d. Offset 32.
void q6_k(Bytes block, float* out) {
  const Bytes high = block + 128;
  const Bytes scales = block + 192;
  const float d = half_at(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int low_bits = (block[half * 64 + i % 64] >> (i % 128 / 64 * 4)) & 15;
    const int high_bits = (high[half * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
    const float scale = d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    out[i] = scale * static_cast<float>((low_bits | (high_bits << 4)) - 32);
  }
}

/// exponent | 16 bytes of numbers as in q4_0.
void mxfp4(Bytes block, float* out) {
  const float scale = mxfp4_scale(block[0]);
  for (int i = 0; i < 16; ++i) {
    out[i] = kMxfp4Numbers[block[1 + i] & 15] * scale;
    out[i + 16] = kMxfp4Numbers[block[1 + i] >> 4] * scale;
  }
}

template <void (*kDecode)(Bytes, float*)>
void each_block(const std::byte* stored, int64_t count, BlockSize size, float* out) {
  const auto* block = reinterpret_cast<Bytes>(stored);
  for (int64_t done = 0; done < count; done += size.elements, block += size.bytes) kDecode(block, out + done);
}

template <float (*kDecode)(uint16_t)>
void each_half(const std::byte* stored, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, stored + 2 * i, sizeof bits);
    out[i] = kDecode(bits);
  }
}

}  // namespace

void dequantize_gguf_blocks(TensorType type, const std::byte* blocks, int64_t count, float* out) {
  const BlockSize size = block_size(type);
  switch (type) {
    case TensorType::q4_0: return each_block<q4_0>(blocks, count, size, out);
    case TensorType::q4_1: return each_block<q4_1>(blocks, count, size, out);
    case TensorType::q5_0: return each_block<q5_0>(blocks, count, size, out);
    case TensorType::q5_1: return each_block<q5_1>(blocks, count, size, out);
    case TensorType::q8_0: return each_block<q8_0>(blocks, count, size, out);
    case TensorType::q2_k: return each_block<q2_k>(blocks, count, size, out);
    case TensorType::q3_k: return each_block<q3_k>(blocks, count, size, out);
    case TensorType::q4_k: return each_block<q4_k>(blocks, count, size, out);
    case TensorType::q5_k: return each_block<q5_k>(blocks, count, size, out);
    case TensorType::q6_k: return each_block<q6_k>(blocks, count, size, out);
    case TensorType::mxfp4: return each_block<mxfp4>(blocks, count, size, out);
    case TensorType::f32:
    case TensorType::f16:
    case TensorType::bf16:
    case TensorType::other: break;
  }
  KVARENA_ASSERT(false, "not a block-quantised type: " + std::string(to_string(type)));
}

void convert_to_f32(TensorType type, const std::byte* stored, int64_t count, float* out) {
  if (count == 0) return;
  switch (type) {
    case TensorType::f32: std::memcpy(out, stored, static_cast<size_t>(count) * sizeof(float)); return;
    case TensorType::f16: return each_half<kernels::f16_to_f32>(stored, count, out);
    case TensorType::bf16: return each_half<kernels::bf16_to_f32>(stored, count, out);
    default: return dequantize_gguf_blocks(type, stored, count, out);
  }
}

}  // namespace kvarena
