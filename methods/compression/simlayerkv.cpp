#include <ATen/ATen.h>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Lazy layers keep their first and newest entries, the others everything. A layer is lazy when its last `last` queries
/// give more than `threshold` of their attention, mean over queries and heads, to the first `sinks` entries and the
/// `recent` before these queries; it then keeps `sinks` and the newest `recent` - `last`. Prompts of at most
/// sinks + recent + last tokens stay whole. What is kept grows while decoding, as in kvpress.
/// Zhang, Liu, Gu, Zhang et al. 2024, arXiv:2410.13846. Thresholds there: 0.9 for Llama 3, 0.65 for Llama 2, 0.8 for
/// Mistral, 0.85 for Qwen.
class SimLayerKv final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("threshold", threshold_).min(0).max(1).doc("share of attention above which a layer is lazy; 1 = none is");
    p("last", last_).min(1).doc("queries at the end of the prompt that decide");
    p("recent", recent_).min(1).doc("newest entries of a lazy layer, `last` included");
    p("sinks", sinks_).min(0).doc("first entries of a lazy layer");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    if (recent_ <= last_) problems.push_back(place + ".recent: found no more than \"last\", expected more");
  }
  Needs needs() const override { return {.window = last_}; }
  bool budgeted() const override { return false; }

  // Newer is better; sinks are no candidates.
  at::Tensor score(const LayerView& layer) const override { return layer.positions().to(at::kFloat); }
  Protection protect(int64_t /*budget*/) const override { return {.sinks = sinks_}; }
  void refine(const LayerView& view, LayerScores& /*scores*/, HeadBudgets& budgets) const override {
    if (threshold_ == 1 || view.n() <= sinks_ + recent_ + last_ || attention_at_ends(view) <= threshold_) return;
    for (int64_t& budget : budgets) budget = std::min(budget, sinks_ + recent_ - last_);
  }

 private:
  [[nodiscard]] double attention_at_ends(const LayerView& view) const {
    const at::Tensor mean = view.window_attention(last_).mean(0).div(last_).narrow(0, 0, view.n() - last_);
    return (mean.narrow(0, 0, sinks_).sum() + mean.narrow(0, mean.size(0) - recent_, recent_).sum()).item<double>();
  }

  double threshold_ = 0.9;
  int64_t last_ = 1;
  int64_t recent_ = 1024;
  int64_t sinks_ = 4;
};

KVARENA_SCORER(SimLayerKv,
               {.name = "simlayerkv",
                .title = "SimLayerKV",
                .summary = "Sinks and a window for layers that look nowhere else, everything for the others.",
                .paper = "arXiv:2410.13846"});

}  // namespace
}  // namespace kvarena
