#include <ATen/ATen.h>

#include <cmath>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Heavy hitters.  S[j,i] = sum over h in group j and all queries t so far of a[h,t,i]; the budget is split between
/// the newest entries and those with the largest S, after the prompt and after every step; S travels with the entries.
/// Keys keep their original rotation.  The authors' code selects per query head on repeated keys; kv heads sum over
/// their group here. "normalise": "visible" divides S by the queries that could see the entry, so that age alone earns
/// nothing: with recent_share 0 that is kvpress's observed attention.  The fractions of the budget are the scripts'
/// equal halves (heavy 0.1 + recent 0.1 of the prompt). Zhang et al. 2023, arXiv:2306.14048, section 4, Algorithm 1.
class H2o final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("recent_share", recent_share_).min(0).max(1).doc("share of the budget that goes to the newest entries");
    p("normalise", normalise_)
        .one_of({"none", "visible"})
        .doc("sums as they are, or divided by the queries that could see the entry");
  }
  Needs needs() const override { return {.prompt_attention = true, .step_attention = true}; }
  at::Tensor score(const LayerView& layer) const override {
    if (normalise_ == "none") return layer.entry_scores();
    const at::Tensor positions = layer.positions();
    return layer.entry_scores() / (positions.amax(1, /*keepdim=*/true) - positions + 1);
  }
  Protection protect(int64_t budget) const override {
    return {.recent = static_cast<int64_t>(std::floor(recent_share_ * static_cast<double>(budget) + 1e-9))};
  }
  bool evicts_while_decoding() const override { return true; }

 private:
  double recent_share_ = 0.5;
  std::string normalise_ = "none";
};

KVARENA_SCORER(H2o, {.name = "h2o",
                     .title = "H2O",
                     .summary = "Keeps the entries with the largest accumulated attention and the newest ones.",
                     .paper = "arXiv:2306.14048, Algorithm 1"});

}  // namespace
}  // namespace kvarena
