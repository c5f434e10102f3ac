#include "kernels/matmul/weight_form.h"

#include <algorithm>
#include <bit>

namespace kvarena::kernels {
namespace {

/// The power of two that an exponent's byte stands for, 2^(byte - 127): a subnormal for 0, infinity for 255.
float power_of_two(uint16_t byte) { return std::bit_cast<float>(std::max<uint32_t>(uint32_t{byte} << 23, 0x00400000)); }

}  // namespace

void block_weights(const BlockForm& form, const WeightBlock& block, float* out) {
  const float base = form.exponent ? power_of_two(block.scale) : f16_to_f32(block.scale);
  const float base_shift = f16_to_f32(block.shift);
  for (int i = 0; i < form.inputs; ++i) {
    const int group = i / form.group, code = block.codes[i];
    const bool factors = form.factor_bits > 0;
    const float scale = factors ? base * static_cast<float>(block.factors[group] - form.factor_zero) : base;
    const float value = form.values != nullptr ? form.values[code] : static_cast<float>(code - form.zero);
    out[i] = scale * value;
    if (form.shifted) out[i] += factors ? base_shift * static_cast<float>(block.shift_factors[group]) : base_shift;
  }
}

}  // namespace kvarena::kernels
