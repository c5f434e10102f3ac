// GGML's quantised blocks, taken apart: what lies where in each. weight_form.h says what their parts mean.
//
// Scales are f16, `d` and `m` (or `dmin`) below; K-quants are super-blocks of 256 elements with quantised scales for
// each 16 or 32 of them. Signed parts become codes by adding what stands for 0.

#include <array>
#include <cstring>

#include "harness/core/error.h"
#include "harness/model/gguf.h"

namespace kvarena {
namespace {

using kernels::WeightBlock;
using kernels::WeightForm;
using Bytes = const uint8_t*;

uint16_t half_at(Bytes at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

/// Shifts are added, where K-quants subtract minima.
uint16_t negative(uint16_t half) { return half ^ 0x8000; }

/// Stores element i in the low nibbles, i + 16 in the high ones.
void nibbles(Bytes packed, WeightBlock& out) {
  for (int i = 0; i < 16; ++i) {
    out.codes[i] = packed[i] & 15;
    out.codes[i + 16] = packed[i] >> 4;
  }
}

/// Adds fifth bits, bit i of element i.
void fifth_bits(Bytes packed, WeightBlock& out) {
  for (int i = 0; i < 32; ++i) out.codes[i] |= ((packed[i / 8] >> i % 8) & 1) << 4;
}

/// d | 16 bytes of nibbles: Q4_0, IQ4_NL.
void q4_0(Bytes block, WeightBlock& out) {
  out.scale = half_at(block);
  nibbles(block + 2, out);
}

/// d m | 16 bytes of nibbles.
void q4_1(Bytes block, WeightBlock& out) {
  out.scale = half_at(block);
  out.shift = half_at(block + 2);
  nibbles(block + 4, out);
}

/// d | 32 fifth bits | 16 bytes of nibbles.
void q5_0(Bytes block, WeightBlock& out) {
  out.scale = half_at(block);
  nibbles(block + 6, out);
  fifth_bits(block + 2, out);
}

/// d m | 32 fifth bits | 16 bytes of nibbles.
void q5_1(Bytes block, WeightBlock& out) {
  out.scale = half_at(block);
  out.shift = half_at(block + 2);
  nibbles(block + 8, out);
  fifth_bits(block + 4, out);
}

/// d | 32 signed bytes.
void q8_0(Bytes block, WeightBlock& out) {
  out.scale = half_at(block);
  for (int i = 0; i < 32; ++i) out.codes[i] = block[2 + i] ^ 0x80;
}

/// Low two bits of the elements of Q2_K and Q3_K: 32 bytes carry 128 elements, two bits a plane.
void two_bits(Bytes packed, WeightBlock& out) {
  for (int i = 0; i < 256; ++i) out.codes[i] = (packed[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
}

/// 16 bytes of scale (low nibble) and minimum (high nibble) for 16 elements each | 64 bytes of two-bit values | d dmin.
void q2_k(Bytes block, WeightBlock& out) {
  out.scale = half_at(block + 80);
  out.shift = negative(half_at(block + 82));
  for (int j = 0; j < 16; ++j) {
    out.factors[j] = block[j] & 15;
    out.shift_factors[j] = block[j] >> 4;
  }
  two_bits(block + 16, out);
}

/// 32 bytes of third bits | 64 bytes of two-bit values | 12 bytes of six-bit scales, offset 32 | d.
/// Scale j: low four bits in nibble j of the first 8 bytes (low nibbles first), high two in plane j / 4 of the rest.
/// A third bit that is clear subtracts 4.
void q3_k(Bytes block, WeightBlock& out) {
  const Bytes scales = block + 96;
  out.scale = half_at(block + 108);
  for (int j = 0; j < 16; ++j) {
    out.factors[j] = ((scales[j % 8] >> (j / 8 * 4)) & 15) | (((scales[8 + j % 4] >> (j / 4 * 2)) & 3) << 4);
  }
  two_bits(block + 32, out);
  for (int i = 0; i < 256; ++i) out.codes[i] |= ((block[i % 32] >> (i / 32)) & 1) << 2;
}

/// Q4_K and Q5_K: d dmin | 12 bytes of six-bit scales and minima for 32 elements each. The first four scales and minima
/// are the low six bits of bytes 0-3 and 4-7; the others take their low four bits from bytes 8-11 and the high two from
/// the top of bytes 0-7.
void six_bits(Bytes block, WeightBlock& out) {
  const Bytes packed = block + 4;
  out.scale = half_at(block);
  out.shift = negative(half_at(block + 2));
  for (int j = 0; j < 4; ++j) {
    out.factors[j] = packed[j] & 63;
    out.shift_factors[j] = packed[j + 4] & 63;
    out.factors[j + 4] = (packed[j + 8] & 15) | (packed[j] >> 6 << 4);
    out.shift_factors[j + 4] = packed[j + 8] >> 4 | (packed[j + 4] >> 6 << 4);
  }
}

/// 128 bytes of nibbles: 32 bytes carry 64 elements, low nibbles first.
void long_nibbles(Bytes packed, WeightBlock& out) {
  for (int i = 0; i < 256; ++i) out.codes[i] = (packed[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4)) & 15;
}

/// d dmin | scales | 128 bytes of nibbles.
void q4_k(Bytes block, WeightBlock& out) {
  six_bits(block, out);
  long_nibbles(block + 16, out);
}

/// d dmin | scales | 32 bytes of fifth bits, bit j of byte i for element 32 j + i | 128 bytes of nibbles.
void q5_k(Bytes block, WeightBlock& out) {
  six_bits(block, out);
  long_nibbles(block + 48, out);
  for (int i = 0; i < 256; ++i) out.codes[i] |= ((block[16 + i % 32] >> (i / 32)) & 1) << 4;
}

/// 128 bytes of low nibbles (64 bytes carry 128 elements) | 64 bytes of high two bits (32 carry 128) | 16 signed
/// scales | d. Offset 32.
void q6_k(Bytes block, WeightBlock& out) {
  const Bytes high = block + 128;
  out.scale = half_at(block + 208);
  for (int j = 0; j < 16; ++j) out.factors[j] = block[192 + j] ^ 0x80;
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int low_bits = (block[half * 64 + i % 64] >> (i % 128 / 64 * 4)) & 15;
    const int high_bits = (high[half * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
    out.codes[i] = static_cast<uint8_t>(low_bits | (high_bits << 4));
  }
}

/// d | 16 bits: high two of the scales | 4 bytes: low four of the scales, offset 32 | 128 bytes of nibbles: 16 bytes
/// carry 32 elements as in q4_0.
void iq4_xs(Bytes block, WeightBlock& out) {
  const uint16_t high = half_at(block + 2);
  out.scale = half_at(block);
  for (int j = 0; j < 8; ++j) {
    out.factors[j] = ((block[4 + j / 2] >> (j % 2 * 4)) & 15) | (((high >> (2 * j)) & 3) << 4);
    for (int i = 0; i < 16; ++i) {
      out.codes[32 * j + i] = block[8 + 16 * j + i] & 15;
      out.codes[32 * j + i + 16] = block[8 + 16 * j + i] >> 4;
    }
  }
}

/// exponent | 16 bytes of nibbles.
void mxfp4(Bytes block, WeightBlock& out) {
  out.scale = block[0];
  nibbles(block + 1, out);
}

struct BlockType {
  TensorType type;
  WeightForm form;
  void (*take_apart)(Bytes block, WeightBlock& out);
};
constexpr std::array kBlockTypes = {
    BlockType{TensorType::q4_0, WeightForm::q4_0, q4_0},     BlockType{TensorType::q4_1, WeightForm::q4_1, q4_1},
    BlockType{TensorType::q5_0, WeightForm::q5_0, q5_0},     BlockType{TensorType::q5_1, WeightForm::q5_1, q5_1},
    BlockType{TensorType::q8_0, WeightForm::q8_0, q8_0},     BlockType{TensorType::q2_k, WeightForm::q2_k, q2_k},
    BlockType{TensorType::q3_k, WeightForm::q3_k, q3_k},     BlockType{TensorType::q4_k, WeightForm::q4_k, q4_k},
    BlockType{TensorType::q5_k, WeightForm::q5_k, q5_k},     BlockType{TensorType::q6_k, WeightForm::q6_k, q6_k},
    BlockType{TensorType::iq4_nl, WeightForm::iq4_nl, q4_0}, BlockType{TensorType::iq4_xs, WeightForm::iq4_xs, iq4_xs},
    BlockType{TensorType::mxfp4, WeightForm::mxfp4, mxfp4},
};

const BlockType& block_type(TensorType type) {
  for (const BlockType& known : kBlockTypes) {
    if (known.type == type) return known;
  }
  KVARENA_ASSERT(false, "not a block-quantised type: " + std::string(to_string(type)));
  return kBlockTypes.front();
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

kernels::WeightForm weight_form(TensorType type) {
  switch (type) {
    case TensorType::f32: return WeightForm::f32;
    case TensorType::f16: return WeightForm::f16;
    case TensorType::bf16: return WeightForm::bf16;
    default: return block_type(type).form;
  }
}

void each_gguf_block(TensorType type, std::span<const std::byte> blocks,
                     const std::function<void(int64_t index, const kernels::WeightBlock& block)>& body) {
  const BlockType& known = block_type(type);
  const int64_t bytes = block_size(type).bytes;
  for (int64_t index = 0; index < std::ssize(blocks) / bytes; ++index) {
    WeightBlock block;
    known.take_apart(reinterpret_cast<Bytes>(blocks.data()) + index * bytes, block);
    body(index, block);
  }
}

void convert_to_f32(TensorType type, const std::byte* stored, int64_t count, float* out) {
  if (count == 0) return;
  switch (type) {
    case TensorType::f32: std::memcpy(out, stored, static_cast<size_t>(count) * sizeof(float)); return;
    case TensorType::f16: return each_half<kernels::f16_to_f32>(stored, count, out);
    case TensorType::bf16: return each_half<kernels::bf16_to_f32>(stored, count, out);
    default: break;
  }
  const BlockSize size = block_size(type);
  const kernels::BlockForm form = kernels::block_form(weight_form(type));
  each_gguf_block(type, {stored, static_cast<size_t>(count / size.elements * size.bytes)},
                  [&](int64_t index, const WeightBlock& block) {
                    kernels::block_weights(form, block, out + index * size.elements);
                  });
}

}  // namespace kvarena
