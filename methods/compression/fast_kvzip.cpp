#include <ATen/ATen.h>

#include <cmath>

#include "harness/method/scorer.h"
#include "harness/method/tensors.h"

namespace kvarena {
namespace {

/// One layer's gate: a small attention of the token to itself against `u` learned base keys.
///   q = norm(W_q h + c) [kv_heads, group, dim],  k = norm(W_k h) [kv_heads, dim]
///   x[m] = q[m].k / sqrt(dim) + b[m],  y[m,u] = q[m].k_base[u] / sqrt(dim)
///   score = mean over m of 1 / (1 + sum over u of exp(y - x))
struct Gate {
  at::Tensor q_weight, q_bias, k_weight, q_norm, k_norm, k_base, b;

  [[nodiscard]] int64_t dim() const { return q_norm.size(0); }

  /// hidden [rows, hidden_size] -> [rows, kv_heads] in (0, 1).
  [[nodiscard]] at::Tensor score(const at::Tensor& hidden) const {
    const int64_t rows = hidden.size(0);
    const int64_t heads = k_base.size(0);
    const double root = std::sqrt(static_cast<double>(dim()));
    const at::Tensor q = normed(at::linear(hidden, q_weight, q_bias).view({rows, heads, -1, dim()}), q_norm);
    const at::Tensor k = normed(at::linear(hidden, k_weight).view({rows, heads, 1, dim()}), k_norm);
    const at::Tensor own = (q * k).sum(-1) / root + b.view({1, heads, -1});  // [rows, heads, group]
    const at::Tensor base = at::matmul(q, k_base.view({heads, -1, dim()}).transpose(1, 2)) / root;  // [.., u]
    return at::sigmoid(own - at::logsumexp(base, -1)).mean(-1);
  }

 private:
  static at::Tensor normed(const at::Tensor& x, const at::Tensor& weight) {
    return x * (x.square().mean(-1, true) + 1e-6).rsqrt() * weight;
  }
};

Gate gate_of(const FittedWeights& weights, const LayerView& layer, int64_t hidden_size) {
  const std::string base = "layers." + std::to_string(layer.layer()) + ".";
  const int64_t heads = layer.kv_heads();
  const int64_t group = layer.group();
  const int64_t dim = weights.at(base + "q_norm.weight", {-1}).shape[0];
  const auto read = [&](const std::string& name, const std::vector<int64_t>& shape) {
    return tensor_of(weights.at(base + name, shape));
  };
  return {.q_weight = read("q_proj.weight", {heads * group * dim, hidden_size}),
          .q_bias = read("q_proj.bias", {heads * group * dim}),
          .k_weight = read("k_proj.weight", {heads * dim, hidden_size}),
          .q_norm = read("q_norm.weight", {dim}),
          .k_norm = read("k_norm.weight", {dim}),
          .k_base = read("k_base", {heads, 1, -1, dim}),
          .b = read("b", {heads, 1, group})};
}

/// Trains gates on KVzip scores with binary cross-entropy (AdamW here, momentum descent in the authors' code).
class GateFitter final : public Fitter {
 public:
  explicit GateFitter(int64_t dim) : dim_(dim) {}

  FittedRequest artifact() const override { return {.method = "fast_kvzip", .variant = {}, .path = {}}; }
  Needs needs() const override { return {.hidden = true, .reconstructions = {kTarget}}; }
  bool half() const override { return true; }

  FittedTensors collect(const LayerView& layer, const RandomStream& draws) const override {
    const int64_t prefix = layer.reconstruction(kTarget).prefix, rows = layer.n() - prefix;
    const at::Tensor chosen = draw_rows(rows, kRows, draws);
    const at::Tensor scores = layer.reconstruction_scores(kTarget).amax(1);
    return {{"x", weight_of(layer.hidden().narrow(0, prefix, rows).index_select(0, chosen))},
            {"y", weight_of(scores.narrow(1, prefix, rows).t().index_select(0, chosen))},
            {"group", {.shape = {1}, .values = {static_cast<float>(layer.group())}}}};
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& draws) const override {
    const at::Tensor x = joined(records, "x");
    const at::Tensor y = joined(records, "y");
    const int64_t heads = y.size(1);
    const auto group = static_cast<int64_t>(records.front().at("group").values[0]);
    const double in = 1 / std::sqrt(static_cast<double>(x.size(1)));
    const int64_t first = int64_t{1} << 32;  // draws before it shuffle
    std::vector<at::Tensor> p = {draw_uniform({heads * group * dim_, x.size(1)}, in, draws, first),
                                 at::zeros({heads * group * dim_}),
                                 draw_uniform({heads * dim_, x.size(1)}, in, draws, 2 * first),
                                 at::ones({dim_}),
                                 at::ones({dim_}),
                                 draw_uniform({heads, 1, kBaseKeys, dim_}, 0.1, draws, 3 * first),
                                 at::zeros({heads, 1, group})};
    const auto gate = [&] { return Gate{p[0], p[1], p[2], p[3], p[4], p[5], p[6]}; };
    descend(p, x.size(0), {}, draws, [&](const at::Tensor& rows) {
      return at::binary_cross_entropy(gate().score(x.index_select(0, rows)), y.index_select(0, rows).clamp(0, 1));
    });
    static constexpr std::array kNames = {
        "q_proj.weight", "q_proj.bias", "k_proj.weight", "q_norm.weight", "k_norm.weight", "k_base", "b"};
    FittedTensors weights;
    for (size_t i = 0; i < p.size(); ++i) weights[kNames[i]] = weight_of(p[i]);
    return weights;
  }

 private:
  static constexpr int64_t kRows = 160;  // of each text
  static constexpr int64_t kBaseKeys = 16;
  inline static const Reconstruction kTarget{
      .first = "\n\nRepeat the previous context exactly.",
      .next = "\n\nRepeat the part of the previous context exactly, starting with"};
  int64_t dim_;
};

/// KVzip's scores from gates on the attention inputs, without its extra passes.  The first `sinks` entries and a window
/// of the newest (`share` of prompts below 32000 tokens, at most 4096) are kept; heads of all layers compete for the
/// rest.  Kim, Han, Yun 2026, arXiv:2601.17668, section 3; the whole prompt is scored at once as in kvpress, the
/// authors prune chunk by chunk.  Decoding keeps everything.
/// Weights: `kvarena fit`, or the published gates with the tensors of layer N named "layers.N.q_proj.weight" and so on.
class FastKvzip final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("sinks", sinks_).min(0).doc("first entries, kept");
    p("share", share_).min(0).max(1).doc("share of a short prompt that its newest entries may take for certain");
    p("weights", weights_).doc("file of gates; empty = the project's for the model");
    p("dim", dim_).min(1).doc("width of a head's gate when gates are fitted (published: 16)");
  }
  Needs needs() const override { return {.hidden = true}; }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<GateFitter>(dim_); }
  std::string default_rule() const override { return R"({"name":"global"})"; }

  at::Tensor score(const LayerView& layer) const override {
    const auto weights = layer.model().fitted({.method = "fast_kvzip", .path = weights_});
    const at::Tensor hidden = layer.hidden();
    at::Tensor scores = gate_of(*weights, layer, hidden.size(1)).score(hidden).t().contiguous();
    const int64_t n = layer.n();
    const int64_t window =
        n < kLong ? std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(n) * share_)) : kLongWindow;
    constexpr float kCertain = std::numeric_limits<float>::max();
    scores.narrow(1, 0, std::min(sinks_, n)).fill_(kCertain);
    scores.narrow(1, n - window, window).fill_(kCertain);
    return scores;
  }

 private:
  static constexpr int64_t kLong = 32000;
  static constexpr int64_t kLongWindow = 4096;

  int64_t sinks_ = 4;
  double share_ = 0.02;
  std::string weights_;
  int64_t dim_ = 8;
};

KVARENA_SCORER(FastKvzip, {.name = "fast_kvzip",
                           .title = "Fast KVzip",
                           .summary = "Keeps the best by learned gates that imitate KVzip.",
                           .paper = "arXiv:2601.17668, section 3"});

}  // namespace
}  // namespace kvarena
