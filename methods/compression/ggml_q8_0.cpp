#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// Blocks of 32 channels of a token as llama.cpp keeps them in a cache of type q8_0.
///   d = max |x| / 127,  code = round(x / d) with ties away from zero,  decoded d code,
/// where codes use the float32 quotient and d is then stored as f16: 8.5 bits an element.
/// llama.cpp, ggml/src/ggml-quants.c: quantize_row_q8_0_ref.
class GgmlQ80 final : public QuantizingCodec {
 public:
  QuantizedFormat format(const LayerContext& /*layer*/) const override {
    constexpr kernels::QuantFormat kSide{.bits = 8,
                                         .group_size = 32,
                                         .meta = DType::f16,
                                         .rule = kernels::QuantRule::ggml_q8,
                                         .first_level = -128,
                                         .token_groups = true};
    return {.keys = kSide, .values = kSide};
  }
};

KVARENA_CODEC(GgmlQ80, {.name = "ggml_q8_0",
                        .title = "Q8_0",
                        .summary = "llama.cpp's blocks of 32 numbers in 8 bits with one scale.",
                        .paper = "https://github.com/ggml-org/llama.cpp"});

}  // namespace
}  // namespace kvarena
