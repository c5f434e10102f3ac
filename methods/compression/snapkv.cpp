#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Votes of the last window of queries.  s[j,i] = mean over h in group j, t in window, of a[h,t,i], pooled over i.
/// Pooling runs over the prefix alone, per query head and before the group's reduction, and its padding counts (edges
/// divide by the kernel size), as in kvpress; order = "group_first" is that of Ada-KV and KVCache-Factory (with average
/// pooling and the mean there is no difference). The authors' code sums over the window instead, which ranks the same,
/// and selects per query head on repeated keys; its LongBench runs pool max over 7 with a window of 32.  The window
/// itself is always kept; decoding keeps everything.
/// FINCH (Corallo, Papotti 2024, TACL 12) lets the question vote (`window`: its tokens), each of its queries' attention
/// times the entries before it ("normalise": "visible"), without pooling (`kernel` 1) and with renumbered positions; of
/// each `chunk` of the prompt the same share stays, by these votes, and what rounding down leaves of the budget goes to
/// the best of their chunks. Li et al. 2024, arXiv:2404.14469, section 4.
class SnapKv final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("window", window_).min(1).doc("queries at the end of the prompt that vote, and entries always kept");
    p("kernel", kernel_).min(1).doc("width of the pooling along entries, odd");
    p("pool", pool_).one_of({"avg", "max"}).doc("how votes are smoothed along entries");
    p("gqa", gqa_).one_of({"mean", "max", "sum"}).doc("how the votes of a kv head's query heads become one");
    p("normalise", normalise_)
        .one_of({"none", "visible"})
        .doc("a query's attention as it is, or times the entries before it, so that early queries count less");
    p("chunk", chunk_).min(1).doc("entries that have a share of the budget to themselves; absent: all of the prompt");
    p("order", order_).one_of({"pool_first", "group_first"}).doc("smooth each query head's votes, or the group's");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    if (kernel_ % 2 == 0) problems.push_back(place + ".kernel: found an even width, expected an odd one");
  }
  Needs needs() const override { return {.window = window_}; }

  at::Tensor score(const LayerView& layer) const override {
    const int64_t window = std::min(window_, layer.n());
    const int64_t prefix = layer.n() - window;
    at::Tensor scores = at::zeros({layer.kv_heads(), layer.n()});  // the window's stay 0: protected, never compared
    if (prefix == 0) return scores;
    const at::Tensor votes =
        layer.window_attention(window_, normalise_ == "visible").narrow(1, 0, prefix).div(window);  // [q_heads, prefix]
    scores.narrow(1, 0, prefix)
        .copy_(order_ == "pool_first" ? layer.group_reduce(smooth(votes), gqa_)
                                      : smooth(layer.group_reduce(votes, gqa_)));
    return chunk_ ? by_chunks(scores, window, layer.share() / static_cast<double>(layer.n())) : scores;
  }
  Protection protect(int64_t /*budget*/) const override { return {.recent = window_}; }

 private:
  [[nodiscard]] at::Tensor smooth(const at::Tensor& votes) const {
    return pool_ == "avg" ? at::avg_pool1d(votes, kernel_, 1, kernel_ / 2)
                          : at::max_pool1d(votes, kernel_, 1, kernel_ / 2);
  }

  /// Ranks within chunks: 1 and more for entries of a chunk's share, less for the others. The window's come first.
  [[nodiscard]] at::Tensor by_chunks(const at::Tensor& votes, int64_t window, double share) const {
    const at::Tensor all = votes.clone();
    all.narrow(1, all.size(1) - window, window).fill_(std::numeric_limits<float>::infinity());
    std::vector<at::Tensor> ranks;
    for (const at::Tensor& chunk : all.split(*chunk_, 1)) {
      const auto n = static_cast<double>(chunk.size(1));
      const at::Tensor before =
          chunk.argsort(/*stable=*/true, 1, /*descending=*/true).argsort(int64_t{1}).to(at::kFloat);
      ranks.push_back(before.lt(std::floor(share * n + 1e-9)).to(at::kFloat) + (1 - (before + 1) / (n + 1)));
    }
    return at::cat(ranks, 1);
  }

  int64_t window_ = 64;
  int64_t kernel_ = 5;
  std::string pool_ = "avg";
  std::string gqa_ = "mean";
  std::string normalise_ = "none";
  std::optional<int64_t> chunk_;
  std::string order_ = "pool_first";
};

KVARENA_SCORER(SnapKv, {.name = "snapkv",
                        .title = "SnapKV",
                        .summary = "Keeps what the last queries of the prompt attend to.",
                        .paper = "arXiv:2404.14469, section 4"});

}  // namespace
}  // namespace kvarena
