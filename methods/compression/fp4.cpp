#include "kernels/quantize/fp4.h"

#include <algorithm>
#include <cmath>

#include "harness/method/codec.h"
#include "kernels/quantize/fp8.h"

namespace kvarena {
namespace {

/// 4-bit floats (e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives) in blocks of a token's channels, each with a
/// scale of 8 bits; codes are the nearest levels, ties to the even code.
///   nvfp4  blocks of 16, s = max |x| / (6 g) rounded to e4m3, decoded g s level; g = max / (6 * 448) is one f32 for a
///          layer's keys and one for its values, of the prompt's largest magnitude, as calibrated checkpoints have it
///          (theirs is of other text). Later blocks that pass that maximum saturate (4.5 bits)
///   mxfp4  blocks of 32, s = 2^(floor(log2 max |x|) - 2), an exponent of 8 bits, decoded s level (4.25 bits)
/// The newest residual_length entries stay in 16 bits: engines that quantise cold pages alone.
/// NVIDIA, TensorRT Model Optimizer (NVFP4); Open Compute Project 2023, Microscaling Formats 1.0, sections 5.3 and 6.3.
class Fp4 final : public QuantizingCodec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("format", format_).one_of({"nvfp4", "mxfp4"}).doc("blocks of 16 with e4m3 scales, or of 32 with powers of two");
    p("residual_length", residual_length_).min(0).doc("newest entries in 16 bits");
  }
  QuantizedFormat format(const LayerContext& layer) const override {
    const bool nv = format_ == "nvfp4";
    const kernels::QuantFormat side{.bits = 4,
                                    .group_size = nv ? 16 : 32,
                                    .rule = nv ? kernels::QuantRule::nv : kernels::QuantRule::mx,
                                    .levels = kernels::Levels::codebook,
                                    .codebook = kernels::kLevelsE2M1,
                                    .token_groups = true};
    QuantizedFormat format{.keys = side, .values = side};
    if (nv) {
      format.key_levels = scaled_levels(layer.cache, /*keys=*/true);
      format.value_levels = scaled_levels(layer.cache, /*keys=*/false);
    }
    return format;
  }
  bool storable() const override { return true; }
  int64_t key_residual() const override { return residual_length_; }
  int64_t value_residual() const override { return residual_length_; }

 private:
  /// The levels times g, of the entries in the cache's tail.
  static std::vector<float> scaled_levels(const LayerCache& cache, bool keys) {
    const LayerShape& shape = cache.shape();
    float largest = 0;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      std::vector<float> rows(static_cast<size_t>(cache.tail().entries(head) * shape.head_dim));
      cache.tail().read(head, keys ? rows.data() : nullptr, keys ? nullptr : rows.data());
      for (const float x : rows) largest = std::max(largest, std::fabs(x));
    }
    const float g = largest == 0 ? 1 : largest / (kernels::kLargestE2M1 * kernels::kLargestE4M3);
    std::vector<float> levels;
    for (const float level : kernels::kLevelsE2M1) levels.push_back(g * level);
    return levels;
  }

  std::string format_ = "nvfp4";
  int64_t residual_length_ = 0;
};

KVARENA_CODEC(Fp4, {.name = "fp4",
                    .title = "FP4",
                    .summary = "4-bit floats in blocks with 8-bit scales, NVFP4 or MXFP4.",
                    .paper = "OCP Microscaling Formats 1.0, section 6.3"});

}  // namespace
}  // namespace kvarena
