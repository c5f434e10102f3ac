#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// Symmetric 8-bit integers, the plainest quantiser there is.  Of each token and head
///   s = max |x| / 127,  code = round(x / s),  decoded s code,
/// with one 16-bit scale for the whole head or for each group_size channels. Every entry is packed at once.
/// Per-token scaling is that of Xiao et al. 2023, arXiv:2211.10438, section 2.
class Int8 final : public QuantizingCodec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("group_size", group_size_).min(0).doc("channels that share a scale, a multiple of 16; 0: the whole head");
  }
  QuantizedFormat format(const LayerContext& layer) const override {
    const LayerShape& shape = layer.cache.shape();
    const kernels::QuantFormat side{.bits = 8,
                                    .group_size = group_size_ == 0 ? shape.head_dim : group_size_,
                                    .meta = meta_type(shape),
                                    .rule = kernels::QuantRule::absmax,
                                    .first_level = -128,
                                    .token_groups = true};
    return {.keys = side, .values = side};
  }

 private:
  int64_t group_size_ = 0;
};

KVARENA_CODEC(Int8, {.name = "int8",
                     .title = "INT8",
                     .summary = "Symmetric 8-bit integers, one scale a token and head.",
                     .paper = "arXiv:2211.10438, section 2"});

}  // namespace
}  // namespace kvarena
