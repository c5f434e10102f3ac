#include <ATen/ATen.h>

#include <limits>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Entries unlike what follows them.  After the sinks, entries are cut into partitions of `lag`; each is normalised by
/// the range of the next, channel by channel, for keys (rotated) and values x:
///   z_tc = (x_tc - min_c) / (max_c - min_c),  u_t = standard deviation of z_t over channels,  softmax of u over the
/// partition; the mean of both sides is the score.
///   kvpress  ranks within the partition (raw scores with cross_scoring) compete under the budget; sinks, the last full
///            partition and what follows it score 1, and under sinks + 2 lag entries the oldest leave. After the
///            prompt. Under a budget that these equals exceed, kvpress keeps whichever torch.topk takes; here sinks
///            stay, then the newest.
///   authors  of every partition that has a successor, the best int(keep lag) stay; sinks, the last full partition and
///            what follows stay whole. A partition is judged once, also while decoding. More stays than the budget
///            says: only whole partitions shrink. Their defaults: sinks 16, lag 1024.
/// A channel that is constant in the reference is left out (0/0 in both codes).
/// Liang, Zhang, Li, Li 2025, arXiv:2504.04704, section 2.
class LagKv final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("sinks", sinks_).min(0).doc("first entries, always kept");
    p("lag", lag_).min(2).doc("entries a partition");
    p("form", form_).one_of({"kvpress", "authors"}).doc("one competition under the budget, or partition by partition");
    p("cross_scoring", cross_scoring_).doc("kvpress: compare scores between partitions instead of ranks");
  }
  bool evicts_while_decoding() const override { return form_ == "authors"; }

  at::Tensor score(const LayerView& layer) const override {
    return form_ == "kvpress" ? by_kvpress(layer) : at::zeros({layer.kv_heads(), layer.n()}, at::kFloat);
  }

  void refine(const LayerView& view, LayerScores& scores, HeadBudgets& budgets) const override {
    if (form_ == "kvpress") return;
    const at::Tensor keys = view.keys();
    const at::Tensor values = view.values();
    const at::Tensor positions = view.positions();
    const double keep = scores.share / static_cast<double>(view.prompt_tokens());
    const auto stay = static_cast<int64_t>(keep * static_cast<double>(lag_) + 1e-9);
    for (int64_t head = 0; head < view.kv_heads(); ++head) {
      std::vector<float>& row = scores.heads[head];
      std::ranges::fill(row, 1.0F);
      budgets[head] = view.n();
      const auto* const position = positions[head].data_ptr<int64_t>();
      // Partitions lie at sinks + k lag in original positions; one that was judged holds fewer than lag entries.
      const int64_t complete = std::max<int64_t>(0, (position[view.n() - 1] + 1 - sinks_) / lag_);
      for (int64_t part = 0; part + 1 < complete; ++part) {
        const int64_t begin = std::lower_bound(position, position + view.n(), sinks_ + part * lag_) - position;
        const int64_t end = std::lower_bound(position, position + view.n(), sinks_ + (part + 1) * lag_) - position;
        if (end - begin < lag_) continue;
        const at::Tensor score = judge(keys[head].narrow(0, begin, 2 * lag_), values[head].narrow(0, begin, 2 * lag_));
        const auto* const judged = score.data_ptr<float>();
        for (int64_t i = 0; i < lag_; ++i) row[begin + i] = 0.0F;
        for (const int32_t i : select_best({judged, static_cast<size_t>(lag_)}, stay, {})) row[begin + i] = 1.0F;
        budgets[head] -= lag_ - stay;
      }
    }
  }

 private:
  /// u of the first half under the second half's range: [..., 2 lag, head_dim] -> softmax over [..., lag].
  [[nodiscard]] at::Tensor side(const at::Tensor& x) const {
    const at::Tensor part = x.narrow(-2, 0, lag_);
    const at::Tensor reference = x.narrow(-2, lag_, lag_);
    const at::Tensor low = reference.amin(-2, /*keepdim=*/true);
    const at::Tensor range = reference.amax(-2, /*keepdim=*/true) - low;
    const at::Tensor flat = range.eq(0);
    at::Tensor z = (part - low) / range.masked_fill(flat, 1);
    // Over the channels that vary: sums with the flat ones at zero.
    const at::Tensor channels = flat.logical_not().sum(-1, /*keepdim=*/true).to(at::kFloat).clamp_min(2);
    z = z.masked_fill(flat, 0);
    const at::Tensor mean = z.sum(-1, /*keepdim=*/true) / channels;
    const at::Tensor deviation = (z - mean).masked_fill(flat, 0).square().sum(-1) / (channels.squeeze(-1) - 1);
    return deviation.sqrt().softmax(-1);
  }
  [[nodiscard]] at::Tensor judge(const at::Tensor& keys, const at::Tensor& values) const {
    return ((side(keys) + side(values)) / 2).contiguous();
  }

  [[nodiscard]] at::Tensor by_kvpress(const LayerView& layer) const {
    const int64_t n = layer.n();
    at::Tensor scores = at::ones({layer.kv_heads(), n}, at::kFloat);
    if (n < sinks_ + 2 * lag_) {
      const int64_t rest = n - sinks_;
      if (rest > 0) scores.narrow(1, sinks_, rest).copy_(at::arange(rest, at::kFloat) / static_cast<double>(rest));
      return scores;
    }
    const at::Tensor keys = layer.keys();
    const at::Tensor values = layer.values();
    int64_t begin = sinks_;
    for (; begin + 2 * lag_ <= n; begin += lag_) {
      at::Tensor part = judge(keys.narrow(1, begin, 2 * lag_), values.narrow(1, begin, 2 * lag_));  // [kv_heads, lag]
      if (!cross_scoring_) part = part.argsort(-1, false).argsort(-1, false) / static_cast<double>(lag_);
      scores.narrow(1, begin, lag_).copy_(part);
    }
    constexpr float kStep = std::numeric_limits<float>::epsilon();  // numbers from 1 to 2 are multiples of it
    scores.narrow(1, 0, sinks_).add_(kStep * static_cast<float>(n - begin));
    scores.narrow(1, begin, n - begin).add_(at::arange(n - begin, at::kFloat), kStep);
    return scores;
  }

  int64_t sinks_ = 4;
  int64_t lag_ = 128;
  std::string form_ = "kvpress";
  bool cross_scoring_ = false;
};

KVARENA_SCORER(LagKv, {.name = "lagkv",
                       .title = "LagKV",
                       .summary = "Keeps the entries that stand out against the entries after them.",
                       .paper = "arXiv:2504.04704, section 2"});

}  // namespace
}  // namespace kvarena
