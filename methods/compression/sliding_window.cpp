#include <ATen/ATen.h>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// The newest entries alone, after the prompt and after every step; keys keep their rotation. Quality collapses once
/// the first token has left, because softmax has nowhere to put the attention it wants to give to nothing: that is what
/// the baseline is for.  Beltagy, Peters, Cohan 2020, arXiv:2004.05150, section 3.1.
class SlidingWindow final : public Scorer {
 public:
  at::Tensor score(const LayerView& layer) const override { return layer.positions().to(at::kFloat); }
  bool evicts_while_decoding() const override { return true; }
};

KVARENA_SCORER(SlidingWindow, {.name = "sliding_window",
                               .title = "Sliding window",
                               .summary = "Keeps the newest entries alone.",
                               .paper = "arXiv:2004.05150, section 3.1"});

}  // namespace
}  // namespace kvarena
