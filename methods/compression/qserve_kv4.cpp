#include <algorithm>
#include <cmath>

#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// 4 bits per token and head with a real zero point, keys smoothed first.
///   s = (max x - min x) / 15,  z = -min x / s,  code = round(x / s + z),  decoded s (code - z), s and z in f16.
/// SmoothAttention divides channel i of the keys by lambda_i = max |K_i|^smooth_alpha and multiplies the queries by it;
/// the two channels of a rotary pair share the larger. The authors fit lambda offline and fold it into the projections;
/// here it is fitted on the prompt's own keys and counted with the cache.
/// Lin et al. 2025, arXiv:2405.04532, sections 4.2 and 5.3.
class QServeKv4 final : public QuantizingCodec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("smooth_alpha", smooth_alpha_).min(0).max(1).doc("exponent of the smoothing factors; 0: none");
  }
  QuantizedFormat format(const LayerContext& layer) const override {
    const kernels::QuantFormat side{.bits = 4,
                                    .group_size = layer.cache.shape().head_dim,
                                    .meta = DType::f16,
                                    .rule = kernels::QuantRule::zero_point,
                                    .token_groups = true};
    return {.keys = side, .values = side, .key_transform = smoothing(layer)};
  }

 private:
  [[nodiscard]] RowTransformPtr smoothing(const LayerContext& layer) const {
    if (smooth_alpha_ == 0) return nullptr;
    const LayerShape& shape = layer.cache.shape();
    const EntrySegment& tail = layer.cache.tail();
    const int64_t d = shape.head_dim;
    std::vector<float> factors;  // [kv_heads, head_dim]
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      std::vector<float> keys(static_cast<size_t>(tail.entries(head) * d));
      tail.read(head, keys.data(), nullptr);
      std::vector<float> largest(static_cast<size_t>(d));
      for (size_t i = 0; i < keys.size(); ++i) largest[i % d] = std::max(largest[i % d], std::fabs(keys[i]));
      for (int64_t c = 0; c < d; ++c) {
        const float pair = std::max(largest[c], largest[(c + d / 2) % d]);
        const bool usable = std::isfinite(pair) && pair > 0;
        factors.push_back(usable ? static_cast<float>(std::pow(pair, smooth_alpha_)) : 1.0F);
      }
    }
    return channel_scaling(d, factors, layer.cache.ledger());
  }

  double smooth_alpha_ = 0.5;
};

KVARENA_CODEC(QServeKv4, {.name = "qserve_kv4",
                          .title = "QServe KV4",
                          .summary = "4 bits per token and head after smoothing the keys' channels.",
                          .paper = "arXiv:2405.04532, section 4.2"});

}  // namespace
}  // namespace kvarena
