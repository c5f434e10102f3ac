// Weights of blocks, unpacked sixteen outputs at a time. Few rows of x are multiplied by them in registers; for more
// rows they become floats in the cache, which matmul_simd.cpp multiplies in its tiles.
//
// One template over the forms: what differs between them is known to the compiler.
#include "kernels/matmul/matmul_simd.h"

namespace kvarena::kernels {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;
#if defined(KVARENA_SIMD_AVX512)
constexpr bool kWideTables = true;
#else
constexpr bool kWideTables = false;
#endif
/// Distance of prefetched blocks, in bytes of a panel.
constexpr int64_t kAhead = 4096;

template <WeightForm FORM>
struct Form {
  static constexpr BlockForm kBlock = block_form(FORM);
  static constexpr int kLower = lower_bits(kBlock.code_bits), kUpper = upper_bits(kBlock.code_bits);
  static constexpr int kCodes = 32 / kLower;  // whose lower bits share a word
  /// Values are looked up, where that takes fewer instructions than computing them.
  static constexpr bool kLookedUp = kBlock.values != nullptr || (kWideTables && kBlock.code_bits <= 5);
};

/// Values of the codes, [32]: those of fewer bits again and again.
template <WeightForm FORM>
struct Table {
  float values[32] = {};
  constexpr Table() {
    constexpr BlockForm kBlock = Form<FORM>::kBlock;
    for (int i = 0; i < 32; ++i) {
      const int code = i % (1 << (kBlock.code_bits < 5 ? kBlock.code_bits : 5));
      values[i] = kBlock.values != nullptr ? kBlock.values[code] : static_cast<float>(code - kBlock.zero);
    }
  }
};
template <WeightForm FORM>
constexpr Table<FORM> kTable;

/// Turns values into weights.
struct Affine {
  F32x16 scale, shift;
};

/// Shifts right by n, or left where n is negative.
KVARENA_INLINE U32x16 moved(U32x16 a, int n) { return n >= 0 ? shift_right(a, n) : shift_left(a, -n); }

/// The code of factor `index`, as a number.
template <WeightForm FORM>
KVARENA_INLINE F32x16 factor_at(const uint32_t* words, int64_t index) {
  constexpr BlockForm kBlock = Form<FORM>::kBlock;
  constexpr int kBits = kBlock.factor_bits, kLow = lower_bits(kBits), kUp = upper_bits(kBits);
  const auto bit = static_cast<int>(index) * kLow;
  U32x16 code = masked(shift_right(load_u32(words + bit / 32 * kPanel), bit % 32), (1U << kLow) - 1);
  if constexpr (kUp > 0) {
    const auto above = static_cast<int>(index) * kUp;
    const uint32_t* upper = words + (lower_words(kBits, factors_of(kBlock)) + above / 32) * kPanel;
    const U32x16 bits = masked(shift_right(load_u32(upper), above % 32), (1U << kUp) - 1);
    code = either(code, shift_left(bits, kLow));
  }
  return numbers(code);
}

/// Scale and shift of group `group` of a block of a panel, of sixteen outputs from `lane` on.
template <WeightForm FORM>
KVARENA_INLINE Affine affine_at(const char* block, int64_t group, int64_t lane) {
  constexpr BlockForm kBlock = Form<FORM>::kBlock;
  Affine found{zero16(), zero16()};
  if constexpr (kBlock.exponent) {
    const U32x16 bits = shift_left(load_u8(reinterpret_cast<const uint8_t*>(block) + lane), 23);
    found.scale = max(bits_of(bits), bits_of(set_u32(0x00400000)));  // 2^-127 is a subnormal
  } else {
    found.scale = load16(F16{}, reinterpret_cast<const uint16_t*>(block) + lane);
  }
  if constexpr (kBlock.shifted) {
    found.shift = load16(F16{}, reinterpret_cast<const uint16_t*>(block + scale_bytes(kBlock)) + lane);
  }
  if constexpr (kBlock.factor_bits > 0) {
    const auto* words = reinterpret_cast<const uint32_t*>(block + factors_at(kBlock)) + lane;
    F32x16 factor = factor_at<FORM>(words, group);
    if constexpr (kBlock.factor_zero > 0) factor = sub(factor, set16(static_cast<float>(kBlock.factor_zero)));
    found.scale = mul(found.scale, factor);
    if constexpr (kBlock.shifted) {
      found.shift = mul(found.shift, factor_at<FORM>(words, groups_of(kBlock) + group));
    }
  }
  return found;
}

/// Values of input i of a run. `lower`: the word of its lower bits; `run`: the run's words, at the lane.
template <WeightForm FORM>
KVARENA_INLINE F32x16 value_at(U32x16 lower, const uint32_t* run, int i) {
  using F = Form<FORM>;
  U32x16 code = shift_right(lower, i % F::kCodes * F::kLower);
  if constexpr (F::kUpper > 0) {
    constexpr int kWord = lower_words(F::kBlock.code_bits, kRunInputs);
    const int bit = i * F::kUpper;
    const U32x16 upper = load_u32(run + (kWord + bit / 32) * kPanel);
    code = merged(code, moved(upper, bit % 32 - F::kLower), ((1U << F::kUpper) - 1) << F::kLower);
  }
  if constexpr (F::kLookedUp) {
    const float* values = kTable<FORM>.values;
    if constexpr (F::kBlock.code_bits == 5) return look_up(code, load16(values), load16(values + kLanes));
    if constexpr (F::kBlock.code_bits < 5) return look_up<F::kBlock.code_bits>(code, load16(values));
  }
  // As the last bits of 2^23 a code is a float at once.
  const U32x16 sum = merged(set_u32(0x4b000000), code, (1U << F::kBlock.code_bits) - 1);
  return sub(bits_of(sum), set16(static_cast<float>(0x800000 + F::kBlock.zero)));
}

template <WeightForm FORM>
KVARENA_INLINE F32x16 weight_of(const Affine& affine, F32x16 value) {
  if constexpr (Form<FORM>::kBlock.shifted) return fma(affine.scale, value, affine.shift);
  return mul(affine.scale, value);
}

/// Calls body(v, input, weights) for every input of run `r` of a block, in ascending order, with the weights of the
/// panel's lower and upper sixteen outputs, v = 0 and 1.
template <WeightForm FORM, class F>
KVARENA_INLINE void each_input(const char* block, int64_t r, const F& body) {
  using Of = Form<FORM>;
  constexpr int kGroups = kRunInputs / Of::kBlock.group, kWords = kRunInputs / Of::kCodes;
  const auto* run = reinterpret_cast<const uint32_t*>(block + codes_at(Of::kBlock) + r * run_bytes(Of::kBlock));
#pragma GCC unroll 2
  for (int g = 0; g < kGroups; ++g) {
    Affine affine[2];
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) affine[v] = affine_at<FORM>(block, r * kGroups + g, v * kLanes);
#pragma GCC unroll 8
    for (int w = g * kWords / kGroups; w < (g + 1) * kWords / kGroups; ++w) {
      U32x16 lower[2];
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        const uint32_t* word = run + w * kPanel + v * kLanes;
        lower[v] = load_u32(word);
        fetch(word + kAhead / 4);
      }
#pragma GCC unroll 16
      for (int i = w * Of::kCodes; i < (w + 1) * Of::kCodes; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          body(v, i, weight_of<FORM>(affine[v], value_at<FORM>(lower[v], run + v * kLanes, i)));
        }
      }
    }
  }
}

/// Multiplies ROWS rows by a panel.
template <WeightForm FORM, int ROWS>
void stream_panel(const StreamArgs& args, int64_t panel) {
  constexpr BlockForm kBlock = Form<FORM>::kBlock;
  const char* block = static_cast<const char*>(args.data) + panel * args.panel_bytes;
  F32x16 acc[ROWS][2];
#pragma GCC unroll 4
  for (int row = 0; row < ROWS; ++row) acc[row][0] = acc[row][1] = zero16();
  const float* x = args.x;
  for (int64_t c = 0; c < args.k; c += kBlock.inputs, block += block_bytes(kBlock)) {
    for (int64_t r = 0; r < kBlock.inputs / kRunInputs; ++r, x += kRunInputs * ROWS) {
      const auto take = [&](int v, int i, F32x16 w) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int row = 0; row < ROWS; ++row) acc[row][v] = fma(set16(x[i * ROWS + row]), w, acc[row][v]);
      };
      each_input<FORM>(block, r, take);
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < ROWS; ++row) {
    write16(args, row, panel * kPanel, acc[row][0]);
    write16(args, row, panel * kPanel + kLanes, acc[row][1]);
  }
}

template <WeightForm FORM, int ROWS>
void stream_rows(const StreamArgs& args, int64_t begin, int64_t end) {
  for (int64_t panel = begin; panel < end; ++panel) stream_panel<FORM, ROWS>(args, panel);
}

template <WeightForm FORM>
void stream_form(const StreamArgs& args, int64_t begin, int64_t end) {
  switch (args.m) {
    case 1: return stream_rows<FORM, 1>(args, begin, end);
    case 2: return stream_rows<FORM, 2>(args, begin, end);
#if defined(KVARENA_SIMD_AVX512)
    case 3: return stream_rows<FORM, 3>(args, begin, end);
    case 4: return stream_rows<FORM, 4>(args, begin, end);
#endif
    default: return;  // more than kFewBlockRows
  }
}

template <WeightForm FORM>
void widen_form(const char* panel, int64_t first, int64_t steps, float* out) {
  constexpr BlockForm kBlock = Form<FORM>::kBlock;
  for (int64_t c = first; c < first + steps; c += kRunInputs, out += kRunInputs * kPanel) {
    const char* block = panel + c / kBlock.inputs * block_bytes(kBlock);
    each_input<FORM>(
        block, c % kBlock.inputs / kRunInputs, [&](int v, int i, F32x16 w) __attribute__((always_inline)) {
          store16(out + i * kPanel + v * kLanes, w);
        });
  }
}

/// Functions of a form.
struct FormTable {
  void (*stream)(const StreamArgs& args, int64_t begin, int64_t end);
  void (*widen)(const char* panel, int64_t first, int64_t steps, float* out);
};
template <WeightForm FORM>
constexpr FormTable kFunctions = {stream_form<FORM>, widen_form<FORM>};

const FormTable& functions_of(WeightForm form) {
  static constexpr FormTable kTables[] = {
      kFunctions<WeightForm::q4_0>,   kFunctions<WeightForm::q4_1>, kFunctions<WeightForm::q5_0>,
      kFunctions<WeightForm::q5_1>,   kFunctions<WeightForm::q8_0>, kFunctions<WeightForm::iq4_nl>,
      kFunctions<WeightForm::mxfp4>,  kFunctions<WeightForm::q2_k>, kFunctions<WeightForm::q3_k>,
      kFunctions<WeightForm::q4_k>,   kFunctions<WeightForm::q5_k>, kFunctions<WeightForm::q6_k>,
      kFunctions<WeightForm::iq4_xs>,
  };
  static_assert(sizeof kTables / sizeof kTables[0] == kWeightForms - 3);
  return kTables[static_cast<int>(form) - static_cast<int>(WeightForm::q4_0)];
}

}  // namespace

namespace KVARENA_SIMD_PATH {

void stream_blocks(const StreamArgs& args, int64_t panel_begin, int64_t panel_end) {
  functions_of(args.form).stream(args, panel_begin, panel_end);
}

void widen_blocks(const void* panel, WeightForm form, int64_t first, int64_t steps, float* out) {
  functions_of(form).widen(static_cast<const char*>(panel), first, steps, out);
}

}  // namespace KVARENA_SIMD_PATH

}  // namespace kvarena::kernels
