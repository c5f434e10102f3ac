#include <ATen/ATen.h>

#include <cmath>

#include "harness/core/normal_draws.h"
#include "harness/method/scorer.h"
#include "harness/method/tensors.h"

namespace kvarena {
namespace {

/// Entries that the prompt attends to whatever its order, and keys that others do not span. Between the first `sinks`
/// and the last `recent` entries, which are kept:
///   leverage   l_i = x_i (X^T X + 0.01 I)^-1 x_i^T,  X = (K - mean) G, K the keys before rotation, G a Gaussian matrix
///              [head_dim, sketch] / sqrt(sketch) a head
///   attention  a_i = |v_i| sum over the queries q of its chunk of softmax over the chunk of q k_i, without a mask and
///              without 1 / sqrt(d); mean over the group, then over three neighbours
///   s = blending l + a, both brought to mean 0 and deviation 1 over the layer.
/// kvpress takes 1 - keep for `blending`; its presses of one part each are `part`. In a last chunk that is not full,
/// the places behind the end count in each softmax as scores of 0, as in kvpress. Chari, Van Durme 2025,
/// arXiv:2507.08143; details as in kvpress (a Cholesky factor where the paper has an SVD).
class Compactor final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("part", part_).one_of({"both", "leverage", "attention"}).doc("what scores: the sum, or one of its parts");
    p("blending", blending_).min(0).doc("weight of the leverage beside the attention");
    p("sinks", sinks_).min(0).doc("first entries, always kept");
    p("recent", recent_).min(0).doc("newest entries, always kept");
    p("chunk", chunk_).min(1).doc("tokens whose queries and keys meet");
    p("sketch", sketch_).min(1).doc("columns of the random projection of keys");
    p("seed", seed_).min(0).doc("of the random projection");
  }
  Needs needs() const override { return part_ == "leverage" ? Needs{} : Needs{.window = kWholePrompt}; }
  Protection protect(int64_t /*budget*/) const override { return {.sinks = sinks_, .recent = recent_}; }

  at::Tensor score(const LayerView& layer) const override {
    const int64_t first = std::min(sinks_, layer.n());
    const int64_t count = layer.n() - first - std::min(recent_, layer.n() - first);
    at::Tensor scores = at::zeros({layer.kv_heads(), layer.n()});  // those of kept entries stay 0, never compared
    if (count < 2) return scores;
    at::Tensor sum = at::zeros({layer.kv_heads(), count});
    if (part_ != "attention") {
      sum.add_(normalised(leverage(layer, first, count)), part_ == "both" ? blending_ : 1);
    }
    if (part_ != "leverage") sum.add_(normalised(attention(layer, first, count)));
    scores.narrow(1, first, count).copy_(sum);
    return scores;
  }

 private:
  static at::Tensor normalised(const at::Tensor& x) { return (x - x.mean()) / x.std().clamp_min(1e-6); }

  [[nodiscard]] at::Tensor leverage(const LayerView& layer, int64_t first, int64_t count) const {
    const int64_t d = layer.head_dim();
    const int64_t heads = layer.first_head() + layer.kv_heads();
    const RandomStream draws(static_cast<uint64_t>(seed_), "compactor/" + std::to_string(layer.layer()));
    const at::Tensor g = at::tensor(draw_normal(heads * d * sketch_, draws))
                             .view({heads, d, sketch_})
                             .narrow(0, layer.first_head(), layer.kv_heads()) /
                         std::sqrt(static_cast<double>(sketch_));
    const at::Tensor keys = keys_before_rotation(layer).narrow(1, first, count);
    const at::Tensor x = (keys - keys.mean(1, /*keepdim=*/true)).matmul(g);  // [kv_heads, n, sketch]
    const at::Tensor columns = x.transpose(1, 2);
    const at::Tensor factor = at::linalg_cholesky(columns.matmul(x) + 0.01 * at::eye(sketch_));
    return (columns * at::cholesky_solve(columns, factor)).sum(1).clamp_min(0);
  }
  static at::Tensor keys_before_rotation(const LayerView& layer) {
    const Rotation& rotation = layer.model().rotation_of(layer.layer());
    const at::Tensor back = -layer.positions().to(at::kDouble);
    std::vector<at::Tensor> heads;
    for (int64_t head = 0; head < layer.kv_heads(); ++head) {
      heads.push_back(rotated(rotation, layer.keys()[head].to(at::kDouble), back[head]));
    }
    return (at::stack(heads) / (rotation.magnitude * rotation.magnitude)).to(at::kFloat);
  }

  [[nodiscard]] at::Tensor attention(const LayerView& layer, int64_t first, int64_t count) const {
    const at::Tensor queries = layer.queries(kWholePrompt).narrow(1, first, count);
    const at::Tensor keys = layer.keys().narrow(1, first, count).transpose(1, 2);  // [kv_heads, head_dim, n]
    std::vector<at::Tensor> sums;
    for (int64_t begin = 0; begin < count; begin += chunk_) {
      const int64_t length = std::min(chunk_, count - begin);
      const at::Tensor q =
          queries.narrow(1, begin, length).reshape({layer.kv_heads(), -1, layer.head_dim()});  // groups' rows
      const at::Tensor scores = q.matmul(keys.narrow(2, begin, length));
      const at::Tensor behind = at::zeros({scores.size(0), scores.size(1), chunk_ - length});
      const at::Tensor shares = at::softmax(at::cat({scores, behind}, -1), -1).narrow(-1, 0, length);
      // Queries behind the end are zero: each spreads evenly over the chunk.
      const double even = static_cast<double>(chunk_ - length) / static_cast<double>(chunk_);
      sums.push_back(shares.view({layer.kv_heads(), layer.group(), length, length}).sum(2) + even);
    }
    const at::Tensor mean = at::cat(sums, -1).mean(1);  // [kv_heads, n]
    return at::avg_pool1d(mean * layer.values().narrow(1, first, count).norm(2, -1), 3, 1, 1);
  }

  std::string part_ = "both";
  double blending_ = 0.35;
  int64_t sinks_ = 8;
  int64_t recent_ = 4;
  int64_t chunk_ = 256;
  int64_t sketch_ = 48;
  int64_t seed_ = 0;
};

KVARENA_SCORER(Compactor, {.name = "compactor",
                           .title = "Compactor",
                           .summary = "Keeps outlying keys and what the prompt attends to in any order.",
                           .paper = "arXiv:2507.08143"});

}  // namespace
}  // namespace kvarena
