#include "harness/method/entry_scores.h"

namespace kvarena {
namespace {

/// An oracle has no index: it reads every key.
struct NoIndex final : public LayerIndex {
  [[nodiscard]] int64_t bytes() const override { return 0; }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& /*ledger*/) const override {
    return std::make_unique<NoIndex>();
  }
};

/// The oracle of retrieval: exact scores of every key choose what is attended.
///   s[h,i] = q_h.k_i / sqrt(d),  p[h,i] = softmax over i;  top entries of  mean over h in the group of p[h,i]
/// gqa = "mean" is the set of B entries a kv head with the largest attention mass of its group; "max" takes the group's
/// maximum instead; "none" is the upper bound, each query head its own B entries, up to B times the group to be loaded.
/// Sinks and recent entries, where asked for, count in B.  SpeCache calls it query-dependent top-k.
/// Jie et al. 2025, arXiv:2503.16163, section 3.1 and Figure 2.
class IdealTopK final : public ScoringRetriever {
 public:
  IdealTopK() : ScoringRetriever("ideal_topk", "mean") {}

  void parameters(ParameterVisitor& p) override {
    ScoringRetriever::parameters(p);
    p("sinks", sinks_).min(0).doc("first entries, always attended");
    p("recent", recent_).min(1).doc("newest entries, always attended");
  }
  Protection protect(int64_t /*budget*/) const override { return {.sinks = sinks_, .recent = recent_}; }

  std::unique_ptr<LayerIndex> make_index(const LayerShape& /*shape*/, const LedgerPtr& /*ledger*/) const override {
    return std::make_unique<NoIndex>();
  }

 protected:
  int64_t scored(const LayerIndex& /*index*/, const EntrySegment& entries) const override { return entries.entries(0); }
  void score(const LayerIndex& /*index*/, const EntrySegment& entries, const LayerQueries& queries, int64_t kv_head,
             std::span<float> scores) const override {
    inner_products(entries, queries, kv_head, scores);
  }

 private:
  int64_t sinks_ = 0;
  int64_t recent_ = 1;
};

KVARENA_RETRIEVER(IdealTopK, {.name = "ideal_topk",
                              .title = "Ideal top-k",
                              .summary = "Attends to the entries with the largest true attention.",
                              .paper = "arXiv:2503.16163, section 3.1"});

}  // namespace
}  // namespace kvarena
