#include <ATen/ATen.h>

#include "harness/method/scorer.h"
#include "harness/method/tensors.h"

namespace kvarena {
namespace {

/// The share of an entry in the information that a linear attention's state holds, per query head h:
///   w_i = exp(tau cos(k_i, mu_h)),  A = I + sum over i of w_i v_i v_i^T,  s_i = w_i v_i^T A^-1 v_i,  mean over the
///   group
/// mu_h is the prompt's mean query, its first `sinks` left out, under the mean rotation of the `future` positions that
/// follow; exponents are shifted so that the largest weight of a head is 1, and epsilon is added to weights in A. The
/// first `sinks` entries are kept and take no part.  CapKV, arXiv:2604.25975; details as in kvpress, which normalises
/// keys and queries where the paper does not, and rotates the mean query.
class CapKv final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("tau", tau_).min(0).doc("how sharply weights follow the queries");
    p("sinks", sinks_).min(0).doc("first entries, kept; their queries do not count either");
    p("future", future_).min(1).doc("positions after the prompt over which the rotation is averaged");
    p("epsilon", epsilon_).min(0).doc("added to the weights");
  }
  Needs needs() const override { return {.query_moments = {sinks_}}; }
  Protection protect(int64_t /*budget*/) const override { return {.sinks = sinks_}; }

  at::Tensor score(const LayerView& layer) const override {
    const int64_t first = std::min(sinks_, layer.n());
    const int64_t count = layer.n() - first;
    at::Tensor scores = at::zeros({layer.kv_heads(), layer.n()});  // the sinks' stay 0: protected, never compared
    if (count == 0) return scores;
    const at::Tensor values = layer.values().narrow(1, first, count).unsqueeze(1);  // [kv_heads, 1, n, head_dim]
    const at::Tensor weights = this->weights(layer, layer.keys().narrow(1, first, count));
    const at::Tensor weighted = values * (weights + epsilon_).unsqueeze(-1);  // [kv_heads, group, n, head_dim]
    const at::Tensor capacity = at::eye(layer.head_dim()) + weighted.transpose(2, 3).matmul(values);
    const at::Tensor columns = values.transpose(2, 3);
    const at::Tensor solved = at::cholesky_solve(columns, at::linalg_cholesky(capacity));
    scores.narrow(1, first, count).copy_((weights * (columns * solved).sum(2)).mean(1));
    return scores;
  }

 private:
  /// w, [kv_heads, group, n].
  [[nodiscard]] at::Tensor weights(const LayerView& layer, const at::Tensor& keys) const {
    const at::Tensor turn = mean_rotation(layer.model().rotation_of(layer.layer()), layer.end(), future_);
    const at::Tensor mean = at::tensor(layer.query_moments(sinks_).mean).view({layer.q_heads(), -1});
    const at::Tensor anchor = unit(mean.matmul(turn.t()).to(at::kFloat)).view({layer.kv_heads(), -1, layer.head_dim()});
    const at::Tensor alike = anchor.matmul(unit(keys).transpose(1, 2)).clamp(-1, 1);
    return (tau_ * (alike - alike.amax(-1, /*keepdim=*/true))).exp();
  }
  static at::Tensor unit(const at::Tensor& x) { return x / x.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12); }

  double tau_ = 5;
  int64_t sinks_ = 4;
  int64_t future_ = 512;
  double epsilon_ = 1e-6;
};

KVARENA_SCORER(CapKv, {.name = "capkv",
                       .title = "CapKV",
                       .summary = "Keeps the entries that the information of the cache hangs on.",
                       .paper = "arXiv:2604.25975"});

}  // namespace
}  // namespace kvarena
