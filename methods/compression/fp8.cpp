#include "kernels/quantize/fp8.h"

#include <algorithm>
#include <cmath>

#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// 8-bit floats as inference engines keep them.  scaling "none" casts to the nearest representable number and saturates
/// (vLLM's default, whose static scales are 1); "token" divides each token's head by max |x| / largest number first,
/// one 16-bit scale a token and head; "head" and "tensor" divide by that of the prompt, one scale for each kv head or
/// for all of a layer, keys and values apart, as calibrated checkpoints have them (theirs is of other text). e4m3 has
/// 3 bits of mantissa and ends at 448, e5m2 has 2 and ends at 57344.
/// Micikevicius et al. 2022, arXiv:2209.05433, section 3.
class Fp8 final : public QuantizingCodec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("format", format_).one_of({"e4m3", "e5m2"}).doc("bits of exponent and mantissa");
    p("scaling", scaling_)
        .one_of({"none", "token", "head", "tensor"})
        .doc("a plain cast; or one scale a token and head, or for a whole kv head, or layer, by the prompt's largest");
  }
  QuantizedFormat format(const LayerContext& layer) const override {
    const LayerShape& shape = layer.cache.shape();
    const kernels::QuantFormat side{.bits = 8,
                                    .group_size = shape.head_dim,
                                    .meta = meta_type(shape),
                                    .rule = scaling_ == "token" ? kernels::QuantRule::absmax : kernels::QuantRule::none,
                                    .levels = format_ == "e4m3" ? kernels::Levels::e4m3 : kernels::Levels::e5m2,
                                    .token_groups = true};
    QuantizedFormat format{.keys = side, .values = side};
    if (scaling_ == "head" || scaling_ == "tensor") {
      format.key_transform = calibrated(layer.cache, /*keys=*/true);
      format.value_transform = calibrated(layer.cache, /*keys=*/false);
    }
    return format;
  }

 private:
  /// Divides a kv head by its largest magnitude among the cache's entries over the largest number of the format.
  [[nodiscard]] RowTransformPtr calibrated(const LayerCache& cache, bool keys) const {
    const LayerShape& shape = cache.shape();
    const float top = format_ == "e4m3" ? kernels::kLargestE4M3 : kernels::kLargestE5M2;
    std::vector<float> scales;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      std::vector<float> rows(static_cast<size_t>(cache.tail().entries(head) * shape.head_dim));
      cache.tail().read(head, keys ? rows.data() : nullptr, keys ? nullptr : rows.data());
      float largest = 0;
      for (const float x : rows) largest = std::max(largest, std::fabs(x));
      scales.push_back(largest == 0 ? 1 : largest / top);
    }
    if (scaling_ == "tensor") std::ranges::fill(scales, std::ranges::max(scales));
    std::vector<float> factors;
    for (const float scale : scales) factors.insert(factors.end(), static_cast<size_t>(shape.head_dim), scale);
    return channel_scaling(shape.head_dim, factors, cache.ledger());
  }

  std::string format_ = "e4m3";
  std::string scaling_ = "none";
};

KVARENA_CODEC(Fp8, {.name = "fp8",
                    .title = "FP8",
                    .summary = "8-bit floats, e4m3 or e5m2.",
                    .paper = "arXiv:2209.05433, section 3"});

}  // namespace
}  // namespace kvarena
