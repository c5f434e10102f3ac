#include <ATen/ATen.h>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Keeps what the model reads when it reads the prompt twice, as much of each layer as the layer's best entries are
/// worth.  a[h,i] = max over the second reading's queries t of softmax over [prompt; second reading up to t] of
/// q[h,t].k; s[j,i] = mean over h in group j of a[h,i], to which the mean of s over the layer's kv heads is added. The
/// i-th best entries of a layer's heads are one composite entry, which may be of different positions; composites of all
/// layers compete by the mean of their scores (the budget rule `composite`).  Costs about one prefill more.
/// Akulov, Sana, De Domenico, Si Salem, Piovesan, Ayed 2025, arXiv:2509.05165, section 3, as kvpress's KVComposePress.
class Kvcompose final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("group", group_).one_of({"mean", "max"}).doc("over the query heads of a kv head");
    p("shared", shared_).doc("add the mean over the layer's kv heads");
  }
  Needs needs() const override { return {.reconstructions = {kAgain}}; }

  at::Tensor score(const LayerView& layer) const override {
    const at::Tensor largest = layer.reconstruction_scores(kAgain);
    const at::Tensor scores = group_ == "mean" ? largest.mean(1) : largest.amax(1);
    return shared_ ? scores + scores.mean(0, /*keepdim=*/true) : scores;
  }
  std::string default_rule() const override { return R"({"name":"composite"})"; }

 private:
  inline static const Reconstruction kAgain{.chunk = kWholePrompt, .sinks = 0, .bare = true};

  std::string group_ = "mean";
  bool shared_ = true;
};

KVARENA_SCORER(Kvcompose, {.name = "kvcompose",
                           .title = "KVCompose",
                           .summary = "Keeps what a second reading attends to, more in layers that have more of it.",
                           .paper = "arXiv:2509.05165, section 3"});

}  // namespace
}  // namespace kvarena
