#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// Keys and values rotated by a Hadamard matrix in each head, so that no channel stands out, then quantised per token.
///   y = H x,  lo = min y,  s = (max y - lo) / (2^bits - 1),  code = round((y - lo) / s)
/// with s and lo in f16 for each token and head. Queries are rotated alike; the output of the values is rotated back
/// (the paper folds that into the weights). The cache part of QuaRot alone: weights and activations stay as they are.
/// Ashkboos et al. 2024, arXiv:2404.00456, section 4.2.
class QuaRotKv final : public QuantizingCodec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("bits", bits_).min(2).max(8).doc("bits of a key or value: 2, 3, 4, 5 or 8");
    p("clip", clip_).above(0).max(1).doc("factor on a token's minimum and maximum before the step is chosen");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    check_bits(place, "bits", bits_, problems);
  }
  QuantizedFormat format(const LayerContext& layer) const override {
    const int64_t head_dim = layer.cache.shape().head_dim;
    const kernels::QuantFormat side{.bits = static_cast<int>(bits_),
                                    .group_size = head_dim,
                                    .meta = DType::f16,
                                    .token_groups = true,
                                    .clip = static_cast<float>(clip_)};
    const RowTransformPtr hadamard = hadamard_transform(head_dim, std::nullopt);
    return {.keys = side, .values = side, .key_transform = hadamard, .value_transform = hadamard};
  }

 private:
  int64_t bits_ = 4;
  double clip_ = 1.0;
};

KVARENA_CODEC(QuaRotKv, {.name = "quarot_kv",
                         .title = "QuaRot-KV",
                         .summary = "Rotates heads by a Hadamard matrix and quantises per token.",
                         .paper = "arXiv:2404.00456, section 4.2"});

}  // namespace
}  // namespace kvarena
