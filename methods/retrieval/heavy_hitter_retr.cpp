#include <cmath>

#include "harness/method/entry_scores.h"
#include "harness/method/head_lists.h"

namespace kvarena {
namespace {

/// Attention that every entry received so far, summed over the group's queries.
struct RunningScores final : public LayerIndex {
  explicit RunningScores(HeadLists<float> sums) : heads(std::move(sums)) {}

  HeadLists<float> heads;  // [kv_heads][entries]

  [[nodiscard]] int64_t bytes() const override { return heads.bytes(); }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    return std::make_unique<RunningScores>(HeadLists(heads, ledger));
  }
};

/// Heavy hitters that nothing is lost to.  S[j,i] = sum over h in group j and all queries t before this one of
/// a[h,t,i], as H2O ranks entries, and the newest entries beside the largest S; but every entry stays, and S goes on
/// counting what full attention would have given it. The distance to H2O is what eviction costs, the distance to the
/// ideal top-k what a ranking by the past costs. The ranking: Zhang et al. 2023, arXiv:2306.14048, section 4.  The
/// comparison: Jie et al. 2025, arXiv:2503.16163, Figure 2.
class HeavyHitterRetrieval final : public Retriever {
 public:
  void parameters(ParameterVisitor& p) override {
    p("recent_share", recent_share_).min(0).max(1).doc("share of the budget that goes to the newest entries");
  }
  Needs needs() const override { return {.prompt_attention = true}; }
  Protection protect(int64_t budget) const override {
    return {.recent = static_cast<int64_t>(std::floor(recent_share_ * static_cast<double>(budget) + 1e-9))};
  }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& shape, const LedgerPtr& ledger) const override {
    return std::make_unique<RunningScores>(HeadLists<float>(shape.kv_heads, ledger));
  }
  void start(LayerIndex& index, const LayerContext& layer, const LayerObservations& seen) const override {
    const LayerShape& shape = layer.cache.shape();
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      LedgerVector<float>& sums = scores(index, head);
      sums.assign(static_cast<size_t>(seen.entries), 0.0F);
      for (int64_t row = head * shape.group(); row < (head + 1) * shape.group(); ++row) {
        for (int64_t i = 0; i < seen.entries; ++i) sums[i] += seen.prompt_attention[row * seen.entries + i];
      }
    }
  }
  Selection select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& /*queries*/,
                   const Candidates& among) const override {
    const auto& heads = static_cast<const RunningScores&>(index).heads;
    Selection selection;
    for (int64_t head = 0; head < heads.heads(); ++head) {
      std::vector<float> sums(heads[head].begin(), heads[head].end());
      sums.resize(static_cast<size_t>(entries.entries(0)), 0.0F);  // new entries have received nothing
      selection.lists.push_back(best_candidates(sums, among, "heavy_hitter_retr"));
    }
    return selection;
  }
  void observe(LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries) const override {
    const LayerShape& shape = entries.shape();
    const int64_t n = entries.entries(0);
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      LedgerVector<float>& sums = scores(index, head);
      sums.resize(static_cast<size_t>(n), 0.0F);
      for (int64_t t = 0; t < queries.q_len; ++t) {
        const int64_t visible = n - (queries.q_len - 1 - t);
        std::vector<float> row(static_cast<size_t>(shape.group() * visible));
        const LayerQueries one{.q = queries.q + t * queries.q_stride, .q_len = 1, .q_stride = queries.q_stride};
        inner_products(entries, one, head, row);
        attention_rows(row, shape, head);
        for (int64_t voter = 0; voter < shape.group(); ++voter) {
          for (int64_t i = 0; i < visible; ++i) sums[i] += row[voter * visible + i];
        }
      }
    }
  }

 private:
  static LedgerVector<float>& scores(LayerIndex& index, int64_t head) {
    return static_cast<RunningScores&>(index).heads[head];
  }

  double recent_share_ = 0.5;
};

KVARENA_RETRIEVER(HeavyHitterRetrieval, {.name = "heavy_hitter_retr",
                                         .title = "Heavy hitters, retrieved",
                                         .summary = "Ranks entries by the attention they received, discarding none.",
                                         .paper = "arXiv:2306.14048, section 4"});

}  // namespace
}  // namespace kvarena
