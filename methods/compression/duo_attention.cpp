#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/method/scorer.h"
#include "harness/method/tensors.h"

namespace kvarena {
namespace {

/// How far back a head looks on average: the area under the cumulated attention of the texts' mean query at distances
/// 0 .. 499 of their mean key, both rotated; mean over the group. Large for a head whose attention reaches back.
/// This is kvpress's training-free stand-in (duo_attention_on_the_fly) for the paper's distillation, which needs
/// gradients through the model.
class ReachFitter final : public Fitter {
 public:
  FittedRequest artifact() const override { return {.method = "duo_attention", .variant = {}, .path = {}}; }
  Needs needs() const override { return {.query_moments = {0}}; }
  int64_t sample_tokens() const override { return 1000; }

  FittedTensors collect(const LayerView& layer, const RandomStream& /*draws*/) const override {
    const int64_t d = layer.head_dim();
    const QueryMoments& moments = layer.query_moments(0);
    const at::Tensor distances = at::arange(kDistances - 1, -1, -1, at::kDouble);  // of keys at positions 0, 1, ...
    const at::Tensor query = at::tensor(moments.mean).view({layer.kv_heads(), layer.group(), d});
    const at::Tensor key = mean_key(layer);
    // q.R(-distance) k, magnitudes of the rotation included twice.
    const Rotation& rotation = layer.model().rotation_of(layer.layer());
    const at::Tensor keys =
        rotated(rotation, key.unsqueeze(1), -distances) * rotation.magnitude;  // [kv_heads, distances, d]
    const at::Tensor logits = at::matmul(query, keys.transpose(1, 2)) / std::sqrt(static_cast<double>(d));
    const at::Tensor reach = at::softmax(logits, -1).cumsum(-1).mean(-1);  // [kv_heads, group]
    return {{"reach", weight_of(reach.mean(1).unsqueeze(0))}};
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& /*draws*/) const override {
    return {{"reach", weight_of(joined(records, "reach").to(at::kDouble).mean(0))}};
  }
  FittedTensors assemble(const std::vector<FittedTensors>& layers) const override {
    std::vector<at::Tensor> rows;
    for (const FittedTensors& layer : layers) rows.push_back(tensor_of(layer.at("reach")));
    return {{"full_attention_heads", weight_of(at::stack(rows))}};
  }

 private:
  static constexpr int64_t kDistances = 500;

  /// Mean key before rotation, [kv_heads, head_dim].
  static at::Tensor mean_key(const LayerView& layer) {
    const Rotation& rotation = layer.model().rotation_of(layer.layer());
    const at::Tensor positions = -layer.positions()[0].to(at::kDouble);
    const at::Tensor keys = rotated(rotation, layer.keys().to(at::kDouble), positions);
    return keys.mean(1) / (rotation.magnitude * rotation.magnitude);
  }
};

/// Retrieval heads keep everything, streaming heads their first `sinks` and last `recent` entries, for the whole run.
/// Which is which is known per kv head before the run: the heads of lowest gate alpha stream.  Xiao, Tang, Zuo et al.
/// 2024, arXiv:2410.10819, sections 3.2 and 3.3.
///   authors  as many as lie below the `sparsity` quantile of alpha; streaming heads roll on while decoding
///   kvpress  round(sparsity * heads); streaming heads are cut once, after the prompt
/// Weights: `kvarena fit` (a training-free stand-in for the gates), or a published full_attention_heads.tsv.
class DuoAttention final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("sparsity", sparsity_).min(0).max(1).doc("share of heads that stream");
    p("sinks", sinks_).min(0).doc("first entries of a streaming head");
    p("recent", recent_).min(1).doc("newest entries of a streaming head");
    p("form", form_).one_of({"authors", "kvpress"}).doc("whose count of heads and behaviour while decoding");
    p("weights", weights_).doc("file of head gates; empty = the project's for the model");
  }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<ReachFitter>(); }
  bool budgeted() const override { return false; }
  bool evicts_while_decoding() const override { return form_ == "authors"; }

  // Newer is better; sinks are no candidates.
  at::Tensor score(const LayerView& layer) const override { return layer.positions().to(at::kFloat); }
  Protection protect(int64_t /*budget*/) const override { return {.sinks = sinks_}; }
  void refine(const LayerView& view, LayerScores& /*scores*/, HeadBudgets& budgets) const override {
    const std::vector<bool> streams = streaming_heads(view);
    for (size_t head = 0; head < budgets.size(); ++head) {
      if (streams[head]) budgets[head] = std::min(budgets[head], sinks_ + recent_);
    }
  }

 private:
  /// Whether each head that `view` shows is a streaming one.
  std::vector<bool> streaming_heads(const LayerView& view) const {
    const auto weights = view.model().fitted({.method = "duo_attention", .path = weights_});
    const FittedTensor& gates = weights->at("full_attention_heads", {view.layers(), -1});
    std::vector<float> alpha = gates.values;
    for (float& value : alpha) value = std::clamp(value, 0.0F, 1.0F);
    std::vector<size_t> order(alpha.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t head) { return alpha[head]; });
    std::vector<bool> streams(alpha.size(), false);
    for (size_t i = 0; i < streaming_count(alpha.size()); ++i) streams[order[i]] = true;
    const int64_t first = view.layer() * gates.shape[1] + view.first_head();
    return {streams.begin() + first, streams.begin() + first + view.kv_heads()};
  }
  size_t streaming_count(size_t heads) const {
    const auto count = static_cast<double>(heads);
    if (form_ == "kvpress") return static_cast<size_t>(std::nearbyint(sparsity_ * count));  // ties to even
    return static_cast<size_t>(std::ceil(sparsity_ * (count - 1) - 1e-9));  // strictly below the quantile
  }

  double sparsity_ = 0.5;
  int64_t sinks_ = 128;
  int64_t recent_ = 256;
  std::string form_ = "authors";
  std::string weights_;
};

KVARENA_SCORER(DuoAttention, {.name = "duo_attention",
                              .title = "DuoAttention",
                              .summary = "Full cache for retrieval heads, sinks and a window for the others.",
                              .paper = "arXiv:2410.10819, section 3"});

}  // namespace
}  // namespace kvarena
