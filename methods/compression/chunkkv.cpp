#include <ATen/ATen.h>

#include <numeric>

#include "harness/method/wrapping_scorer.h"

namespace kvarena {
namespace {

/// Whole chunks, so that what belongs together stays together.  Another method's scores are summed over kv heads and
/// averaged over each chunk (the last one may be shorter); of C chunks the best max(1, int(C keep)) stay, the same for
/// every head, so the entries kept are about the budget. partial = true fills the budget exactly with the front of the
/// next best chunk. Entries that the other method protects count as its largest score plus one, as in kvpress; a
/// prompt shorter than a chunk is left to that method. The paper's recommended length is 10, kvpress's default 20.
/// The paper's reuse of one layer's choice for the next is not part of it.  Decoding keeps everything.
/// Liu et al. 2025, arXiv:2502.00299, Algorithm 1; kvpress, chunkkv_press.py.
class ChunkKv final : public WrappingScorer {
 public:
  ChunkKv() : WrappingScorer(R"({"name":"snapkv"})") {}

  void parameters(ParameterVisitor& p) override {
    WrappingScorer::parameters(p);
    p("chunk_size", chunk_size_).min(1).doc("entries a chunk");
    p("partial", partial_).doc("fill the budget exactly, with a part of one chunk");
  }
  bool evicts_while_decoding() const override { return false; }

  void refine(const LayerView& view, LayerScores& scores, HeadBudgets& budgets) const override {
    const int64_t n = view.n();
    if (n < chunk_size_ || *std::ranges::min_element(budgets) >= n) return;
    const std::vector<float> means = chunk_means(scores, n);
    const auto chunks = static_cast<int64_t>(means.size());
    for (int64_t head = 0; head < view.kv_heads(); ++head) {
      std::vector<float>& row = scores.heads[head];
      if (!partial_) {
        // As a fraction of the chunks; int(C keep) and not by way of the rounded number of entries.
        const Division even{.share = scores.share, .layers = {}};
        const double share = budgets[head] == even.capacity() ? scores.share : static_cast<double>(budgets[head]);
        const auto wanted = static_cast<int64_t>(static_cast<double>(chunks) * share / static_cast<double>(n) + 1e-9);
        budgets[head] = 0;
        for (const int32_t chunk : select_best(means, std::max<int64_t>(1, wanted), {})) {
          budgets[head] += std::min(chunk_size_, n - chunk * chunk_size_);
        }
      }
      for (int64_t i = 0; i < n; ++i) row[i] = means[i / chunk_size_];
    }
  }
  /// Chunks know no protected entries; the other method's count by their score.
  Protection protect(int64_t /*budget*/) const override { return {}; }

 private:
  [[nodiscard]] std::vector<float> chunk_means(const LayerScores& scores, int64_t n) const {
    const Protection kept = WrappingScorer::protect(Division{.share = scores.share, .layers = {}}.capacity());
    float largest = std::numeric_limits<float>::lowest();
    for (const auto& row : scores.heads) {
      largest = std::max(largest, *std::max_element(row.begin(), row.end()));
    }
    std::vector<float> means;
    for (int64_t begin = 0; begin < n; begin += chunk_size_) {
      const int64_t end = std::min(begin + chunk_size_, n);
      double sum = 0;
      for (const auto& row : scores.heads) {
        for (int64_t i = begin; i < end; ++i) sum += i < kept.sinks || i >= n - kept.recent ? largest + 1 : row[i];
      }
      means.push_back(static_cast<float>(sum / static_cast<double>(end - begin)));
    }
    return means;
  }

  int64_t chunk_size_ = 20;
  bool partial_ = false;
};

KVARENA_SCORER(ChunkKv, {.name = "chunkkv",
                         .title = "ChunkKV",
                         .summary = "Keeps whole chunks of neighbouring entries, ranked by any method's scores.",
                         .paper = "arXiv:2502.00299, Algorithm 1"});

}  // namespace
}  // namespace kvarena
