#include <ATen/ATen.h>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// The ceiling of dropping: keeps what the future will really attend to.  Full KV reads the question, where that is
/// still to come, and decodes `horizon` tokens greedily; s[j,i] = sum over these tokens' queries and h in group j of
/// a[h,t,i].  So each question about one context finds a cache of its own.  Nothing is protected, and decoding keeps
/// everything.  No method that must decide at the end of the prompt can know this; how far one stays below it is what
/// better scores could still win.
class FutureOracle final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("horizon", horizon_).min(1).doc("tokens of the full-KV continuation that are looked at");
  }
  Needs needs() const override { return {.future = horizon_}; }
  at::Tensor score(const LayerView& layer) const override { return layer.group_sum(layer.future_attention()); }

 private:
  int64_t horizon_ = 64;
};

KVARENA_SCORER(FutureOracle, {.name = "future_oracle",
                              .title = "Oracle",
                              .summary = "Keeps what the full-KV continuation will attend to.",
                              .paper = "a bound, not a method"});

}  // namespace
}  // namespace kvarena
