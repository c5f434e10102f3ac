#include <ATen/ATen.h>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Attention of the newest queries, less redundancy among keys:  s_i = lambda a_i - (1 - lambda) r_i, every 128 tokens.
///   attention   a = softmax over the entries before the window of the largest q.k of the group; mean over the window's
///               queries, then the largest within `kernel` neighbours
///   redundancy  r = softmax over all entries of the mean of their cosines with the others; of every entry's cosines
///               above `alike` the one with the newest does not count, so that of equals the newest stays. An entry
///               without any does not count its cosine with the first, as in the authors' code.
/// The window is always kept. With "protect_prompt" only generated entries compete and take part, as in TriAttention's
/// runs of R-KV (whose code leaves the window out of the cosines). Cai et al. 2025, arXiv:2505.24133, section 3;
/// lambda is the paper's (the authors' script: 0.07).
class Rkv final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("window", window_).min(1).doc("newest queries that vote, and entries always kept");
    p("kernel", kernel_).min(1).doc("width of the pooling along entries, odd");
    p("lambda", lambda_).min(0).max(1).doc("weight of attention beside redundancy");
    p("alike", alike_).min(-1).max(1).doc("cosine above which two keys say the same");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    if (kernel_ % 2 == 0) problems.push_back(place + ".kernel: found an even width, expected an odd one");
  }
  Needs needs() const override { return {.window = window_}; }
  Protection protect(int64_t /*budget*/) const override { return {.recent = window_}; }
  std::optional<int64_t> default_interval() const override { return 128; }

  at::Tensor score(const LayerView& layer) const override {
    const int64_t before = layer.n() - std::min(window_, layer.n());
    at::Tensor scores = at::zeros({layer.kv_heads(), layer.n()});  // the window's stay 0: protected, never compared
    if (before == 0) return scores;
    const at::Tensor redundancy = this->redundancy(layer.keys()).narrow(1, 0, before);
    scores.narrow(1, 0, before).copy_(attention(layer, before) * lambda_ - redundancy * (1 - lambda_));
    return scores;
  }

 private:
  /// a, [kv_heads, before].
  [[nodiscard]] at::Tensor attention(const LayerView& layer, int64_t before) const {
    at::Tensor sums = at::zeros({layer.kv_heads(), before});
    int64_t queries = 0;
    layer.for_each_query_block(window_, [&](const at::Tensor& scores, int64_t /*first*/) {
      const at::Tensor seen = scores.narrow(-1, 0, before);
      const at::Tensor largest = seen.reshape({layer.kv_heads(), layer.group(), -1, before}).amax(1);
      sums.add_(largest.softmax(-1).sum(1));
      queries += scores.size(1);
    });
    return at::max_pool1d(sums / queries, kernel_, 1, kernel_ / 2);
  }

  /// r, [kv_heads, n]. The sum of an entry's cosines is its product with the sum of all keys of length 1, so only those
  /// that do not count are computed one by one.
  [[nodiscard]] at::Tensor redundancy(const at::Tensor& keys) const {
    std::vector<at::Tensor> rows;
    for (const at::Tensor& head : (keys / (keys.norm(2, -1, /*keepdim=*/true) + 1e-8)).unbind(0)) {
      const at::Tensor unit = head.to(at::kDouble), newest = newest_alike(head);
      const at::Tensor itself = newest.eq(at::arange(newest.size(0)));
      const at::Tensor with_newest = (unit * unit.index_select(0, newest)).sum(1).masked_fill(itself, 0);
      at::Tensor sums = unit.mv(unit.sum(0)) - unit.square().sum(1);
      rows.push_back(sums.index_add_(0, newest, with_newest, /*alpha=*/-1).to(at::kFloat));
    }
    return (at::stack(rows) / keys.size(1)).softmax(-1);
  }

  /// The newest entry whose cosine with each of unit [n, head_dim] is above `alike`, the first where there is none:
  /// [n].
  [[nodiscard]] at::Tensor newest_alike(const at::Tensor& unit) const {
    at::Tensor newest = at::zeros({unit.size(0)}, at::kLong), open = at::arange(unit.size(0));
    for (int64_t end = unit.size(0); end > 0 && open.numel() > 0; end -= kColumns) {
      const int64_t begin = std::max<int64_t>(0, end - kColumns);
      const at::Tensor numbers = at::arange(begin, end);
      const at::Tensor own = open.unsqueeze(1).eq(numbers);
      const at::Tensor cosines =
          unit.index_select(0, open).matmul(unit.narrow(0, begin, end - begin).t()).masked_fill(own, 0);
      const at::Tensor last = at::where(cosines.gt(alike_), numbers, -1).amax(1);
      newest.index_put_({open}, last.clamp_min(0));
      open = open.masked_select(last.lt(0));
    }
    return newest;
  }

  static constexpr int64_t kColumns = 64;  // of cosines at a time

  int64_t window_ = 8;
  int64_t kernel_ = 7;
  double lambda_ = 0.1;
  double alike_ = 0.5;
};

KVARENA_SCORER(Rkv, {.name = "rkv",
                     .title = "R-KV",
                     .summary = "Keeps what the newest queries attend to and other keys do not repeat.",
                     .paper = "arXiv:2505.24133, section 3"});

}  // namespace
}  // namespace kvarena
