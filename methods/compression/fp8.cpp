#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// 8-bit floats as inference engines keep them.  scaling "none" casts to the nearest representable number and saturates
/// (vLLM's default, whose static scales are 1); "token" divides each token's head by max |x| / largest number first,
/// one 16-bit scale a token and head. e4m3 has 3 bits of mantissa and ends at 448, e5m2 has 2 and ends at 57344.
/// Micikevicius et al. 2022, arXiv:2209.05433, section 3.
class Fp8 final : public QuantizingCodec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("format", format_).one_of({"e4m3", "e5m2"}).doc("bits of exponent and mantissa");
    p("scaling", scaling_).one_of({"none", "token"}).doc("none: a plain cast; token: one scale a token and head");
  }
  QuantizedFormat format(const LayerContext& layer) const override {
    const LayerShape& shape = layer.cache.shape();
    const kernels::QuantFormat side{.bits = 8,
                                    .group_size = shape.head_dim,
                                    .meta = meta_type(shape),
                                    .rule = scaling_ == "none" ? kernels::QuantRule::none : kernels::QuantRule::absmax,
                                    .levels = format_ == "e4m3" ? kernels::Levels::e4m3 : kernels::Levels::e5m2,
                                    .token_groups = true};
    return {.keys = side, .values = side};
  }

 private:
  std::string format_ = "e4m3";
  std::string scaling_ = "none";
};

KVARENA_CODEC(Fp8, {.name = "fp8",
                    .title = "FP8",
                    .summary = "8-bit floats, e4m3 or e5m2.",
                    .paper = "arXiv:2209.05433, section 3"});

}  // namespace
}  // namespace kvarena
