#pragma once
// Forms that packed weights are stored in: plain floats, or blocks of codes under shared scales, which take as many
// bits as the quantised types of GGUF files take there.
//
// A weight of a block is scale * value, and + shift where the form has shifts; its code says the value. Blocks of 32
// inputs have one scale and one shift. In blocks of 256 a group of 16 or 32 inputs has factors on both. Every product
// is exact in float32 (at most 11 + 7 + 7 significant bits, or 11 + 7 + 5), so a weight is rounded once, where its
// shift is added, and fusing that sum changes no bit.
//
// Functions here have internal linkage, as those of dtype.h have.

#include <cstdint>

#include "kernels/common/dtype.h"

namespace kvarena::kernels {

/// The first three are DType's, in its order.
enum class WeightForm : uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  iq4_nl,
  mxfp4,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_xs,
};
inline constexpr int kWeightForms = 16;

[[nodiscard]] static constexpr bool is_blocks(WeightForm form) { return form > WeightForm::bf16; }
[[nodiscard]] static constexpr WeightForm form_of(DType dtype) { return static_cast<WeightForm>(dtype); }
/// Type of a form of plain floats.
[[nodiscard]] static constexpr DType dtype_of(WeightForm form) { return static_cast<DType>(form); }

static constexpr float kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/// Numbers of one sign, two exponent bits and one of mantissa (OCP Microscaling Formats 1.0), both zeros as 0.
static constexpr float kMxfp4Values[16] = {0.0F, 0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                           0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

/// The unit that inputs are stored in: a block holds one or eight.
inline constexpr int kRunInputs = 32;

struct BlockForm {
  int inputs = kRunInputs;  // of a block
  int group = kRunInputs;   // inputs that share factors
  int code_bits = 4;        // 2, 3, 4, 5, 6 or 8
  int zero = 0;             // the code of value 0, where values are code - zero
  bool shifted = false;
  bool exponent = false;          // the scale is a power of two, stored as the byte of its exponent; else f16
  int factor_bits = 0;            // 4, 6 or 8; 0: no factors
  int factor_zero = 0;            // the code of factor 0 on scales; on shifts it is 0
  const float* values = nullptr;  // of the codes, where they are a table of 16
};

[[nodiscard]] static constexpr BlockForm block_form(WeightForm form) {
  switch (form) {
    case WeightForm::q4_0: return {.zero = 8};
    case WeightForm::q4_1: return {.shifted = true};
    case WeightForm::q5_0: return {.code_bits = 5, .zero = 16};
    case WeightForm::q5_1: return {.code_bits = 5, .shifted = true};
    case WeightForm::q8_0: return {.code_bits = 8, .zero = 128};
    case WeightForm::iq4_nl: return {.values = kIq4Values};
    case WeightForm::mxfp4: return {.exponent = true, .values = kMxfp4Values};
    case WeightForm::q2_k: return {.inputs = 256, .group = 16, .code_bits = 2, .shifted = true, .factor_bits = 4};
    case WeightForm::q3_k:
      return {.inputs = 256, .group = 16, .code_bits = 3, .zero = 4, .factor_bits = 6, .factor_zero = 32};
    case WeightForm::q4_k: return {.inputs = 256, .shifted = true, .factor_bits = 6};
    case WeightForm::q5_k: return {.inputs = 256, .code_bits = 5, .shifted = true, .factor_bits = 6};
    case WeightForm::q6_k:
      return {.inputs = 256, .group = 16, .code_bits = 6, .zero = 32, .factor_bits = 8, .factor_zero = 128};
    case WeightForm::iq4_xs: return {.inputs = 256, .factor_bits = 6, .factor_zero = 32, .values = kIq4Values};
    case WeightForm::f32:
    case WeightForm::f16:
    case WeightForm::bf16: break;
  }
  return {.inputs = 1};
}

/// A block of one output, taken apart.
struct WeightBlock {
  uint16_t scale = 0;              // f16, or the exponent's byte
  uint16_t shift = 0;              // f16
  uint8_t factors[16] = {};        // codes, of the groups
  uint8_t shift_factors[16] = {};  // codes, of the groups
  uint8_t codes[8 * kRunInputs] = {};
};

/// The weights of a block, [form.inputs]: the definition of every form.
void block_weights(const BlockForm& form, const WeightBlock& block, float* out);

// Codes lie in words of 32 bits, a word of each output: first the lower bits of all codes (2, 4 or 8 bits each), then
// the upper ones (1 or 2), so that no code crosses words.
[[nodiscard]] static constexpr int lower_bits(int bits) { return bits >= 8 ? 8 : bits >= 4 ? 4 : 2; }
[[nodiscard]] static constexpr int upper_bits(int bits) { return bits - lower_bits(bits); }
[[nodiscard]] static constexpr int lower_words(int bits, int count) { return lower_bits(bits) * count / 32; }
/// Words of `count` codes.
[[nodiscard]] static constexpr int code_words(int bits, int count) {
  return bits == 0 ? 0 : lower_words(bits, count) + (upper_bits(bits) * count + 31) / 32;
}

// A block of a panel of 32 outputs: scales [32], shifts [32], words of the factors [words][32], those on scales before
// those on shifts, and the words of each run of 32 inputs in turn.
inline constexpr int kBlockOutputs = 32, kWordBytes = 4 * kBlockOutputs;
[[nodiscard]] static constexpr int scale_bytes(const BlockForm& form) {
  return form.exponent ? kBlockOutputs : 2 * kBlockOutputs;
}
[[nodiscard]] static constexpr int groups_of(const BlockForm& form) { return form.inputs / form.group; }
/// Factors of a block, on scales and shifts.
[[nodiscard]] static constexpr int factors_of(const BlockForm& form) {
  return form.factor_bits == 0 ? 0 : groups_of(form) * (form.shifted ? 2 : 1);
}
/// Bytes from the beginning of a block to the words of its factors.
[[nodiscard]] static constexpr int factors_at(const BlockForm& form) {
  return scale_bytes(form) + (form.shifted ? 2 * kBlockOutputs : 0);
}
[[nodiscard]] static constexpr int codes_at(const BlockForm& form) {
  return factors_at(form) + code_words(form.factor_bits, factors_of(form)) * kWordBytes;
}
[[nodiscard]] static constexpr int run_bytes(const BlockForm& form) {
  return code_words(form.code_bits, kRunInputs) * kWordBytes;
}
/// Bytes of a block of a panel.
[[nodiscard]] static constexpr int block_bytes(const BlockForm& form) {
  return codes_at(form) + form.inputs / kRunInputs * run_bytes(form);
}

}  // namespace kvarena::kernels
