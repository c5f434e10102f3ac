#include <ATen/ATen.h>

#include <cmath>

#include "harness/core/normal_draws.h"
#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Rows that stand out in length, an approximation of the leverage scores of a CUR decomposition:
///   s_i = |k_i|^2 |v_i|^2, each norm as a share of its partition of `window` entries, over the sum of the head
/// on rotated keys. The first `sinks` entries score 1. Of `sketch` columns > 0 the norms are those of k_i G and v_i G,
/// G a Gaussian matrix [head_dim, sketch] / sqrt(sketch). Sengupta, Chaudhary, Chakraborty 2025, arXiv:2509.15038,
/// section 3; details as in kvpress.
class CurDkv final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("sinks", sinks_).min(0).doc("first entries, whose score is the largest");
    p("leverage", leverage_).one_of({"key", "value", "mean", "product"}).doc("whose norms are the score");
    p("window", window_).min(0).doc("entries a partition in which norms are shares; 0 = all");
    p("sketch", sketch_).min(0).doc("columns of a random projection before the norms; 0 = none");
    p("seed", seed_).min(0).doc("of the random projection");
  }

  at::Tensor score(const LayerView& layer) const override {
    at::Tensor keys = layer.keys();
    at::Tensor values = layer.values();
    if (sketch_ > 0) {
      const std::vector<float> normal =
          draw_normal(layer.head_dim() * sketch_, RandomStream(static_cast<uint64_t>(seed_), "curdkv"));
      const at::Tensor g =
          at::tensor(normal).view({layer.head_dim(), sketch_}) / std::sqrt(static_cast<double>(sketch_));
      keys = keys.matmul(g);
      values = values.matmul(g);
    }
    at::Tensor scores = combined(shares(keys), shares(values));
    scores.div_(scores.sum(-1, /*keepdim=*/true));
    scores.narrow(1, 0, std::min(sinks_, layer.n())).fill_(1);
    return scores;
  }

 private:
  /// Squared norms as shares of their partitions: [kv_heads, n, width] -> [kv_heads, n].
  [[nodiscard]] at::Tensor shares(const at::Tensor& x) const {
    const at::Tensor norms = x.square().sum(-1);
    if (window_ == 0) return norms;
    const int64_t n = norms.size(1);
    const at::Tensor parts =
        at::constant_pad_nd(norms, {0, (window_ - n % window_) % window_}).view({norms.size(0), -1, window_});
    return (parts / parts.sum(-1, /*keepdim=*/true)).view({norms.size(0), -1}).narrow(1, 0, n);
  }
  [[nodiscard]] at::Tensor combined(const at::Tensor& keys, const at::Tensor& values) const {
    if (leverage_ == "key") return keys.clone();
    if (leverage_ == "value") return values.clone();
    return leverage_ == "mean" ? (keys + values) / 2 : keys * values;
  }

  int64_t sinks_ = 4;
  std::string leverage_ = "product";
  int64_t window_ = 16;
  int64_t sketch_ = 0;
  int64_t seed_ = 0;
};

KVARENA_SCORER(CurDkv, {.name = "curdkv",
                        .title = "CurDKV",
                        .summary = "Keeps the entries whose keys and values are long beside their neighbours'.",
                        .paper = "arXiv:2509.15038, section 3"});

}  // namespace
}  // namespace kvarena
