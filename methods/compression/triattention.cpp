#include <ATen/ATen.h>

#include "harness/method/scorer.h"
#include "harness/method/tensors.h"

namespace kvarena {
namespace {

/// Norms of channel pairs (c, c + d / 2): [.., d] -> [.., d / 2].
at::Tensor pair_norms(const at::Tensor& x) {
  const std::vector<at::Tensor> half = x.chunk(2, -1);
  return (half[0].square() + half[1].square()).sqrt();
}

/// Mean of queries before rotation, and of the norms of their channel pairs.
class QueryCentres final : public Fitter {
 public:
  FittedRequest artifact() const override { return {.method = "triattention", .variant = {}, .path = {}}; }
  Needs needs() const override { return {.window = kWholePrompt}; }
  int64_t sample_tokens() const override { return 1024; }

  FittedTensors collect(const LayerView& layer, const RandomStream& /*draws*/) const override {
    const Rotation& rotation = layer.model().rotation_of(layer.layer());
    const at::Tensor queries = layer.queries(kWholePrompt).to(at::kDouble);
    const at::Tensor plain = unrotated(rotation, queries, at::arange(layer.n(), at::kDouble));  // [q_heads, n, d]
    return {{"count", {.shape = {1}, .values = {static_cast<float>(layer.n())}}},
            {"mean", weight_of(plain.mean(1).unsqueeze(0))},
            {"norm", weight_of(pair_norms(plain).mean(1).unsqueeze(0))}};
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& /*draws*/) const override {
    const at::Tensor counts = joined(records, "count").to(at::kDouble);
    const at::Tensor shares = (counts / counts.sum()).view({-1, 1, 1});
    return {{"query_mean", weight_of((joined(records, "mean") * shares).sum(0))},
            {"query_norm", weight_of((joined(records, "norm") * shares).sum(0))}};
  }
};

/// Attention that queries at distances to come would pay, were all of them at their centre; every 128 tokens.  Of a
/// query head with mean query c and mean norms m of channel pairs f, both before rotation, for the token at `now`:
///   s_i = mean over t = 1, 2, 4 .. `horizon` of (R(now + t) c) . k_i  +  sum over f of (m_f - |c_f|) |k_i,f|
/// k_i as it is cached: turning c forward is the trigonometric series of the distance to k_i. Brought to mean 0 and
/// deviation 1 over the entries that compete (`normalise`), then the largest of the group. With "protect_prompt" only
/// generated entries compete, as in the authors' runs. kv heads choose by themselves in each layer, the authors'
/// per_layer_perhead_pruning; their default lets a kv head choose once for all layers. "TriAttention: Efficient Long
/// Reasoning with Trigonometric KV Compression" 2026, arXiv:2604.04921; details as in WeianMao/triattention. Weights:
/// `kvarena fit`.
class TriAttention final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("horizon", horizon_).min(1).doc("furthest distance of a query to come");
    p("normalise", normalise_).doc("bring each query head's scores to mean 0 and deviation 1");
    p("weights", weights_).doc("file of fitted centres; empty = the project's for the model");
  }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<QueryCentres>(); }
  std::optional<int64_t> default_interval() const override { return 128; }

  at::Tensor score(const LayerView& layer) const override {
    const auto weights = layer.model().fitted({.method = "triattention", .variant = {}, .path = weights_});
    const Rotation& rotation = layer.model().rotation_of(layer.layer());
    const int64_t d = layer.head_dim();
    const std::string base = "layers." + std::to_string(layer.layer()) + ".query_";
    const auto shown = [&](const std::string& name, int64_t width) {
      return tensor_of(weights->at(base + name, {-1, width}))
          .narrow(0, layer.first_head() * layer.group(), layer.q_heads())
          .to(at::kDouble);
    };
    const at::Tensor centre = shown("mean", d);
    const at::Tensor spread = shown("norm", d / 2) - pair_norms(centre);  // m - |c|
    const at::Tensor keys = layer.keys().to(at::kDouble);                 // [kv_heads, n, head_dim]
    const auto per_head = [&](const at::Tensor& by, const at::Tensor& of) {
      return by.view({layer.kv_heads(), layer.group(), -1}).matmul(of.transpose(1, 2));  // [kv_heads, group, n]
    };
    const at::Tensor norms = pair_norms(keys) * rotation.magnitude;
    at::Tensor scores =
        per_head(turned(rotation, centre, layer.positions().max().item<int64_t>() + 1), keys) + per_head(spread, norms);
    if (normalise_) {
      const at::Tensor away = scores - scores.mean(-1, /*keepdim=*/true);
      scores = away / away.square().mean(-1, /*keepdim=*/true).sqrt().clamp_min(1e-6);
    }
    return scores.amax(1);
  }

 private:
  /// Mean of the centres as queries at now + 1, now + 2, now + 4 ..: [q_heads, head_dim].
  [[nodiscard]] at::Tensor turned(const Rotation& rotation, const at::Tensor& centre, int64_t now) const {
    std::vector<double> positions;
    for (int64_t ahead = 1; ahead <= horizon_; ahead *= 2) positions.push_back(static_cast<double>(now + ahead));
    return rotated(rotation, centre.unsqueeze(1), at::tensor(positions)).mean(1);
  }

  int64_t horizon_ = 65536;
  bool normalise_ = true;
  std::string weights_;
};

KVARENA_SCORER(TriAttention, {.name = "triattention",
                              .title = "TriAttention",
                              .summary = "Keeps the keys that the centre of queries to come attends to.",
                              .paper = "arXiv:2604.04921"});

}  // namespace
}  // namespace kvarena
