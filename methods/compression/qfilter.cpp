#include <ATen/ATen.h>

#include "harness/method/scorer.h"
#include "harness/method/tensors.h"

namespace kvarena {
namespace {

/// The main direction of each query head's queries, towards most of them, mean over the group, negated as published.
class FilterFitter final : public Fitter {
 public:
  FittedRequest artifact() const override { return {.method = "qfilter", .variant = {}, .path = {}}; }
  Needs needs() const override { return {.window = kWholePrompt}; }
  int64_t sample_tokens() const override { return 1024; }

  FittedTensors collect(const LayerView& layer, const RandomStream& draws) const override {
    const at::Tensor chosen = draw_rows(layer.n(), kRows, draws);
    const at::Tensor rows = layer.queries(kWholePrompt).index_select(1, chosen).transpose(0, 1);
    return {{"queries", weight_of(rows)},  // [rows, q_heads, head_dim]
            {"kv_heads", {.shape = {1}, .values = {static_cast<float>(layer.kv_heads())}}}};
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& /*draws*/) const override {
    const at::Tensor rows = joined(records, "queries").to(at::kDouble).transpose(0, 1);
    const auto kv_heads = static_cast<int64_t>(records.front().at("kv_heads").values.front());
    const at::Tensor vectors = std::get<1>(at::linalg_eigh(rows.transpose(1, 2).matmul(rows)));  // in columns
    const at::Tensor main = vectors.select(-1, -1);                                              // of the largest value
    const at::Tensor along = rows.matmul(main.unsqueeze(-1)).squeeze(-1).gt(0).to(at::kDouble).mean(-1);
    const at::Tensor sign = along.gt(0.5).to(at::kDouble) * 2 - 1;
    const at::Tensor filters = -(main * sign.unsqueeze(-1)).view({kv_heads, -1, rows.size(-1)}).mean(1);
    return {{"filter", weight_of(filters)}};
  }

 private:
  static constexpr int64_t kRows = 128;  // of each text; the authors draw 3000 rows of all of theirs
};

/// Keys along the direction that queries share: s[j,i] = -f_j . k_i, the filter f_j pointing away from most queries. No
/// attention is needed, and a filter is head_dim numbers of a kv head. Godey et al. 2025, arXiv:2503.02812, section 3;
/// as in kvpress and the authors' code, keys are rotated and nothing is protected. Weights: `kvarena fit`, or published
/// filters in `weights`, their tensor q_filters [layers, kv_heads, head_dim] in safetensors.
class QFilter final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("weights", weights_).doc("file of fitted or published filters; empty = the project's for the model");
  }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<FilterFitter>(); }

  at::Tensor score(const LayerView& layer) const override {
    const auto weights = layer.model().fitted({.method = "qfilter", .variant = {}, .path = weights_});
    return layer.keys().mul(filter(*weights, layer).unsqueeze(1)).sum(-1).neg();
  }

 private:
  static at::Tensor filter(const FittedWeights& weights, const LayerView& layer) {
    const std::string own = "layers." + std::to_string(layer.layer()) + ".filter";
    const at::Tensor heads =
        weights.has("q_filters")
            ? tensor_of(weights.at("q_filters", {layer.layers(), -1, layer.head_dim()}))[layer.layer()]
            : tensor_of(weights.at(own, {-1, layer.head_dim()}));
    return heads.narrow(0, layer.first_head(), layer.kv_heads());
  }

  std::string weights_;
};

KVARENA_SCORER(QFilter, {.name = "qfilter",
                         .title = "Q-Filters",
                         .summary = "Keeps the keys along the direction that queries share.",
                         .paper = "arXiv:2503.02812, section 3"});

}  // namespace
}  // namespace kvarena
