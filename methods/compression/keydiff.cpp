#include <ATen/ATen.h>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Keys unlike the others.  anchor_j = mean over i of k[j,i] / ||k[j,i]||,  s[j,i] = -cos(k[j,i], anchor_j), on rotated
/// keys.  Nothing is protected and values are not used. As in kvpress the prompt is compressed once; the paper goes
/// block by block ("block") and on while decoding ("decode_interval").
/// Park, Jones, Morse, Goel, Lee, Lott 2025, arXiv:2504.15364, section 4.
class KeyDiff final : public Scorer {
 public:
  at::Tensor score(const LayerView& layer) const override {
    const at::Tensor keys = layer.keys();  // [kv_heads, n, head_dim]
    const at::Tensor anchor = (keys / keys.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12)).mean(1, /*keepdim=*/true);
    return at::cosine_similarity(keys, anchor, -1).neg();
  }
};

KVARENA_SCORER(KeyDiff, {.name = "keydiff",
                         .title = "KeyDiff",
                         .summary = "Keeps the entries whose keys differ most from the mean direction.",
                         .paper = "arXiv:2504.15364, section 4"});

}  // namespace
}  // namespace kvarena
