#include <ATen/ATen.h>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Keeps the keys of smallest norm: s[j,i] = -||k[j,i]||.  Low-norm keys are the ones that draw attention; every
/// implementation keeps them, also where prose states the opposite. Nothing is protected. Rotation does not change the
/// norm. Devoto, Zhao, Scardapane, Minervini 2024, arXiv:2406.11430, section 3.
class Knorm final : public Scorer {
 public:
  at::Tensor score(const LayerView& layer) const override { return layer.keys().norm(2, -1).neg(); }
};

KVARENA_SCORER(Knorm, {.name = "knorm",
                       .title = "L2 norm",
                       .summary = "Keeps the entries whose keys have the smallest norm.",
                       .paper = "arXiv:2406.11430, section 3"});

}  // namespace
}  // namespace kvarena
