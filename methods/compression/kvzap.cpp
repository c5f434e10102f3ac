#include <ATen/ATen.h>

#include "harness/method/scorer.h"
#include "harness/method/tensors.h"

namespace kvarena {
namespace {

/// The score that KVzip+ would give, foretold from the attention input of a layer: f_l(h) = log s, [rows, kv_heads], a
/// linear map or one hidden layer with GELU. Tensors are named and shaped as in the published weights.
at::Tensor surrogate(const FittedWeights& weights, int64_t layer, int64_t kv_heads, const at::Tensor& hidden) {
  const std::string base = "layers." + std::to_string(layer) + ".";
  const auto apply = [&](const std::string& name, int64_t out, const at::Tensor& x) {
    return at::linear(x, tensor_of(weights.at(name + ".weight", {out, x.size(1)})),
                      tensor_of(weights.at(name + ".bias", {out})));
  };
  if (weights.has(base + "weight")) return apply(base.substr(0, base.size() - 1), kv_heads, hidden);
  const int64_t inner = weights.at(base + "0.weight", {-1, hidden.size(1)}).shape[0];
  return apply(base + "2", kv_heads, at::gelu(apply(base + "0", inner, hidden)));
}

/// Regresses log KVzip+ scores on attention inputs, a layer at a time, as the authors' training does: ridge regression
/// with an intercept, or AdamW with a cosine rate.
class SurrogateFitter final : public Fitter {
 public:
  SurrogateFitter(std::string kind, int64_t inner) : kind_(std::move(kind)), inner_(inner) {}

  FittedRequest artifact() const override { return {.method = "kvzap", .variant = kind_, .path = {}}; }
  Needs needs() const override { return {.hidden = true, .reconstructions = {kTarget}}; }
  bool half() const override { return kind_ == "mlp"; }

  FittedTensors collect(const LayerView& layer, const RandomStream& draws) const override {
    const int64_t prefix = layer.reconstruction(kTarget).prefix, rows = layer.n() - prefix;
    const at::Tensor chosen = draw_rows(rows, kRows, draws);
    const at::Tensor scores = layer.reconstruction_scores(kTarget).amax(1);
    const at::Tensor x = layer.hidden().narrow(0, prefix, rows).index_select(0, chosen);
    const at::Tensor y = scores.narrow(1, prefix, rows).t().clamp_min(kSmallest).log().index_select(0, chosen);
    return {{"x", weight_of(x)}, {"y", weight_of(y)}};
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& draws) const override {
    const at::Tensor x = joined(records, "x");
    const at::Tensor y = joined(records, "y");
    return kind_ == "linear" ? ridge(x.to(at::kDouble), y.to(at::kDouble)) : mlp(x, y, draws);
  }

 private:
  static constexpr int64_t kRows = 160;       // of each text
  static constexpr double kSmallest = 1e-20;  // scores that underflow have no logarithm
  inline static const Reconstruction kTarget{
      .first = "\n\nRepeat the previous context exactly.",
      .next = "\n\nRepeat the part of the previous context exactly, starting with",
      .output_norm = true};

  static FittedTensors ridge(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor x_mean = x.mean(0, /*keepdim=*/true);
    const at::Tensor y_mean = y.mean(0, /*keepdim=*/true);
    const at::Tensor centred = x - x_mean;
    const at::Tensor square = centred.t().matmul(centred) + at::eye(x.size(1), at::kDouble);  // penalty 1
    const at::Tensor weight = at::cholesky_solve(centred.t().matmul(y - y_mean), at::linalg_cholesky(square)).t();
    return {{"weight", weight_of(weight)}, {"bias", weight_of(y_mean[0] - weight.matmul(x_mean[0]))}};
  }

  FittedTensors mlp(const at::Tensor& x, const at::Tensor& y, const RandomStream& draws) const {
    const double in = 1 / std::sqrt(static_cast<double>(x.size(1)));
    const double out = 1 / std::sqrt(static_cast<double>(inner_));
    const int64_t first = int64_t{1} << 32;  // draws before it shuffle
    std::vector<at::Tensor> p = {draw_uniform({inner_, x.size(1)}, in, draws, first), at::zeros({inner_}),
                                 draw_uniform({y.size(1), inner_}, out, draws, 2 * first), y.mean(0)};
    descend(p, x.size(0), {}, draws, [&](const at::Tensor& rows) {
      const at::Tensor hidden = at::gelu(at::linear(x.index_select(0, rows), p[0], p[1]));
      return at::mse_loss(at::linear(hidden, p[2], p[3]), y.index_select(0, rows));
    });
    return {{"0.weight", weight_of(p[0])},
            {"0.bias", weight_of(p[1])},
            {"2.weight", weight_of(p[2])},
            {"2.bias", weight_of(p[3])}};
  }

  std::string kind_;
  int64_t inner_;
};

/// Foretold KVzip+ scores: s[j,i] = f_l(h_i)[j].  No extra pass over the prompt and no attention is needed, and tokens
/// of the answer are scored as they arrive. The best stay within a budget (kvpress: kvzap_mlp_head; with budget_rule
/// heads kvzap_mlp_layer), or what reaches a `threshold` (the paper's main form, with DMS of arXiv:2506.05345; on
/// Qwen3-8B the authors take -3 to -6). Jegou, Jeblick 2026, arXiv:2601.07891, section 3; h is taken behind the input
/// norm as in kvpress. Weights: `kvarena fit`, or a published model.safetensors in `weights`.
/// Scores travel with the entries (4 bytes an entry and head). The newest are protected as in kvpress, whose KVzapPress
/// runs inside DMSPress; there is no budget there that they could exhaust, so here they have half of one at most.
class Kvzap final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("kind", kind_).one_of({"linear", "mlp"}).doc("the surrogate's form, where the project's own weights are used");
    p("weights", weights_).doc("file of fitted or published weights; empty = the project's for the model");
    p("inner", inner_).min(1).doc("width of the hidden layer when an mlp is fitted (published: 512)");
    p("decoding", decoding_).doc("evict while decoding too");
    p("window", window_).min(0).doc("newest entries that are always kept, of half the budget at most");
  }
  Needs needs() const override { return {.hidden = true, .step_hidden = decoding_}; }
  Protection protect(int64_t budget) const override { return {.recent = std::min(window_, budget / 2)}; }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<SurrogateFitter>(kind_, inner_); }

  at::Tensor score(const LayerView& layer) const override {
    if (layer.decoding()) return layer.entry_scores();
    return foretell(layer.model(), layer.layer(), layer.kv_heads(), layer.hidden()).t().contiguous();
  }
  bool evicts_while_decoding() const override { return decoding_; }
  int64_t score_width() const override { return decoding_ ? 1 : 0; }
  at::Tensor remember_prompt(const LayerView& layer) const override { return score(layer).unsqueeze(-1); }
  void observe(const StepAttention& step) const override {
    const int64_t heads = step.entries->shape().kv_heads;
    const at::Tensor hidden = at::from_blob(const_cast<float*>(step.hidden), {1, step.model->hidden_size});
    const at::Tensor scores = foretell(*step.model, step.layer, heads, hidden).contiguous();
    for (int64_t head = 0; head < heads; ++head) {
      step.entries->entry_scores(head)[step.entries->entries(head) - 1 - step.unseen] = scores.data_ptr<float>()[head];
    }
  }

 private:
  at::Tensor foretell(const ModelFacts& model, int64_t layer, int64_t kv_heads, const at::Tensor& hidden) const {
    const auto weights = model.fitted({.method = "kvzap", .variant = kind_, .path = weights_});
    return surrogate(*weights, layer, kv_heads, hidden);
  }

  std::string kind_ = "mlp";
  std::string weights_;
  int64_t inner_ = 64;
  bool decoding_ = true;
  int64_t window_ = 128;
};

KVARENA_SCORER(Kvzap, {.name = "kvzap",
                       .title = "KVzap",
                       .summary = "Keeps the best by KVzip scores foretold from hidden states.",
                       .paper = "arXiv:2601.07891, section 3"});

}  // namespace
}  // namespace kvarena
