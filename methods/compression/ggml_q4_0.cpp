#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// Blocks of 32 channels of a token as llama.cpp keeps them in a cache of type q4_0.
///   d = (the x of largest magnitude, with its sign) / -8,  code = min(15, trunc(x / d + 8.5)),  decoded d (code - 8),
/// where codes use the float32 quotient and d is then stored as f16: 4.5 bits an element.
/// llama.cpp, ggml/src/ggml-quants.c: quantize_row_q4_0_ref.
class GgmlQ40 final : public QuantizingCodec {
 public:
  QuantizedFormat format(const LayerContext& /*layer*/) const override {
    constexpr kernels::QuantFormat kSide{.bits = 4,
                                         .group_size = 32,
                                         .meta = DType::f16,
                                         .rule = kernels::QuantRule::ggml_q4,
                                         .first_level = -8,
                                         .token_groups = true};
    return {.keys = kSide, .values = kSide};
  }
};

KVARENA_CODEC(GgmlQ40, {.name = "ggml_q4_0",
                        .title = "Q4_0",
                        .summary = "llama.cpp's blocks of 32 numbers in 4 bits with one scale.",
                        .paper = "https://github.com/ggml-org/llama.cpp"});

}  // namespace
}  // namespace kvarena
