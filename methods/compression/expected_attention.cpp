#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "harness/core/error.h"
#include "harness/method/scorer.h"
#include "harness/method/tensors.h"

namespace kvarena {
namespace {

/// Mean and covariance (divided by N - 1) of all texts' queries, named and shaped as in the published statistics.
class Statistics final : public Fitter {
 public:
  explicit Statistics(int64_t sinks) : sinks_(sinks) {}
  FittedRequest artifact() const override { return {.method = "expected_attention", .variant = {}, .path = {}}; }
  Needs needs() const override { return {.query_moments = {sinks_}}; }
  int64_t sample_tokens() const override { return 1000; }
  bool half() const override { return true; }

  FittedTensors collect(const LayerView& layer, const RandomStream& /*draws*/) const override {
    const QueryMoments& moments = layer.query_moments(sinks_);
    const int64_t d = layer.head_dim();
    return {{"count", {.shape = {1}, .values = {static_cast<float>(moments.count)}}},
            {"mean", weight_of(at::tensor(moments.mean).view({1, layer.q_heads(), d}))},
            {"covariance", weight_of(at::tensor(moments.covariance).view({1, layer.q_heads(), d, d}))}};
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& /*draws*/) const override {
    const at::Tensor counts = joined(records, "count").to(at::kDouble);
    const at::Tensor means = joined(records, "mean").to(at::kDouble);
    const at::Tensor shares = counts / counts.sum();
    const at::Tensor mean = (means * shares.view({-1, 1, 1})).sum(0);  // [q_heads, head_dim]
    const at::Tensor away = means - mean;
    const at::Tensor spread = joined(records, "covariance").to(at::kDouble) + away.unsqueeze(3) * away.unsqueeze(2);
    const at::Tensor covariance = (spread * shares.view({-1, 1, 1, 1})).sum(0) * counts.sum() / (counts.sum() - 1);
    return {{"query_mean", weight_of(mean)}, {"query_cov", weight_of(covariance)}};
  }
  FittedTensors assemble(const std::vector<FittedTensors>& layers) const override {
    std::vector<at::Tensor> means;
    std::vector<at::Tensor> covariances;
    for (const FittedTensors& layer : layers) {
      means.push_back(tensor_of(layer.at("query_mean")));
      covariances.push_back(tensor_of(layer.at("query_cov")));
    }
    return {{"query_mean", weight_of(at::stack(means))}, {"query_cov", weight_of(at::stack(covariances))}};
  }

 private:
  int64_t sinks_;
};

/// Attention that Gaussian future queries are expected to pay.
///   1. mean mu and covariance S of the queries before rotation, of this prompt (its first `sinks` left out) or fitted
///   2. R = mean over positions n .. n + future - 1 of the rotation;  mu' = R mu,  S' = R S R^T
///   3. p = softmax over i of  mu'.k_i / sqrt(d) + k_i^T S' k_i / (2 d),  mean over the group
///   4. s_i = (p_i + epsilon) |v_i|
/// The first `sinks` entries are kept and share no softmax.  Devoto, Jeblick, Jegou 2025, arXiv:2510.00636, section 3;
/// details as in kvpress (expected_attention_press.py, and its variant with statistics).
class ExpectedAttention final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("sinks", sinks_).min(0).doc("first entries, kept; their queries do not count either");
    p("future", future_).min(1).doc("positions after the prompt over which the rotation is averaged");
    p("covariance", covariance_).doc("use the queries' covariance beside their mean");
    p("value_norm", value_norm_).doc("weigh by the norm of the value");
    p("statistics", statistics_).one_of({"prompt", "fitted"}).doc("whose queries: this prompt's, or those of a fit");
    p("weights", weights_).doc("file of fitted statistics; empty = the project's for the model");
    p("epsilon", epsilon_).min(0).doc("added to probabilities before the weight");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    if (weights_.empty() || fitted()) return;
    problems.push_back(describe({.place = place + ".weights",
                                 .found = fmt::format("\"{}\" beside the prompt's own statistics", weights_),
                                 .expected = "\"statistics\": \"fitted\" beside it"}));
  }
  Needs needs() const override { return fitted() ? Needs{} : Needs{.query_moments = {sinks_}}; }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<Statistics>(sinks_); }

  at::Tensor score(const LayerView& layer) const override {
    const int64_t first = std::min(sinks_, layer.n());
    at::Tensor scores = at::zeros({layer.kv_heads(), layer.n()});  // the sinks' stay 0: protected, never compared
    if (first == layer.n()) return scores;
    const int64_t d = layer.head_dim();
    const int64_t count = layer.n() - first;
    const at::Tensor turn = mean_rotation(layer.model().rotation_of(layer.layer()), layer.end(), future_);  // R
    const auto [plain_mean, plain_covariance] = fitted() ? fitted_moments(layer) : prompt_moments(layer);
    const at::Tensor mean = at::matmul(plain_mean, turn.t()).to(at::kFloat);
    const at::Tensor keys = layer.keys().narrow(1, first, count);  // [kv_heads, n, d]
    const at::Tensor queries = mean.view({layer.kv_heads(), -1, d});
    at::Tensor logits = at::matmul(queries, keys.transpose(1, 2)) / std::sqrt(static_cast<double>(d));
    if (covariance_) {
      const at::Tensor spread = at::matmul(turn, at::matmul(plain_covariance, turn.t())).to(at::kFloat);
      // A query head at a time: its products stay in the cache.
      for (int64_t head = 0; head < layer.q_heads(); ++head) {
        const at::Tensor own = keys[head / layer.group()];
        logits[head / layer.group()][head % layer.group()] +=
            at::matmul(own, spread[head]).mul_(own).sum(-1) / static_cast<double>(2 * d);
      }
    }
    at::Tensor expected = at::softmax(logits, -1).mean(1);  // [kv_heads, n]
    if (value_norm_) expected = (expected + epsilon_) * layer.values().narrow(1, first, count).norm(2, -1);
    scores.narrow(1, first, count).copy_(expected);
    return scores;
  }
  Protection protect(int64_t /*budget*/) const override { return {.sinks = sinks_}; }

 private:
  static at::Tensor doubles(const std::vector<double>& values, at::IntArrayRef sizes) {
    return at::from_blob(const_cast<double*>(values.data()), sizes, at::kDouble);
  }

  bool fitted() const { return statistics_ == "fitted"; }

  /// Mean [q_heads, head_dim] and covariance [q_heads, head_dim, head_dim] before rotation, in double.
  std::pair<at::Tensor, at::Tensor> prompt_moments(const LayerView& layer) const {
    const QueryMoments& moments = layer.query_moments(sinks_);
    const int64_t d = layer.head_dim();
    return {doubles(moments.mean, {layer.q_heads(), d}), doubles(moments.covariance, {layer.q_heads(), d, d})};
  }
  std::pair<at::Tensor, at::Tensor> fitted_moments(const LayerView& layer) const {
    const auto weights = layer.model().fitted({.method = "expected_attention", .path = weights_});
    const int64_t d = layer.head_dim();
    const auto shown = [&](const FittedTensor& of_layers) {
      return tensor_of(of_layers)[layer.layer()]
          .narrow(0, layer.first_head() * layer.group(), layer.q_heads())
          .to(at::kDouble);
    };
    return {shown(weights->at("query_mean", {layer.layers(), -1, d})),
            shown(weights->at("query_cov", {layer.layers(), -1, d, d}))};
  }

  int64_t sinks_ = 4;
  int64_t future_ = 512;
  bool covariance_ = true;
  bool value_norm_ = true;
  double epsilon_ = 0;
  std::string statistics_ = "prompt";
  std::string weights_;
};

KVARENA_SCORER(ExpectedAttention, {.name = "expected_attention",
                                   .title = "Expected Attention",
                                   .summary = "Keeps what queries like the prompt's are expected to attend to later.",
                                   .paper = "arXiv:2510.00636, section 3"});

}  // namespace
}  // namespace kvarena
