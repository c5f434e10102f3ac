#include <ATen/ATen.h>

#include "harness/method/plugin.h"
#include "harness/method/scorer.h"

namespace {

/// Keeps the entries whose values are largest: s[j,i] = ||v[j,i]||_p.
class ValueNorm final : public kvarena::Scorer {
 public:
  void parameters(kvarena::ParameterVisitor& p) override { p("order", order_).min(1).doc("order p of the norm"); }

  at::Tensor score(const kvarena::LayerView& layer) const override {
    return layer.values().norm(order_, -1);  // [kv_heads, n, head_dim] -> [kv_heads, n]
  }

  kvarena::Protection protect(int64_t /*budget*/) const override { return {.sinks = 4, .recent = 16}; }

 private:
  double order_ = 2;
};

KVARENA_SCORER(ValueNorm, {.name = "value_norm",
                           .title = "Value norm",
                           .summary = "Keeps the entries with the largest values.",
                           .paper = "none"});

}  // namespace

KVARENA_PLUGIN("value_norm", "1.0");
