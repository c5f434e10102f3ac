#pragma once
// Retrieval: everything stays in the cache, each step attends to the entries that matter for its query.
//
//   class IdealTopK final : public ScoringRetriever {  // entry_scores.h; whole pages or clusters: Retriever itself
//    public:
//     void score(const LayerIndex&, const EntrySegment& entries, const LayerQueries& queries, int64_t kv_head,
//                std::span<float> scores) const override {
//       inner_products(entries, queries, kv_head, scores);
//     }
//   };
//   KVARENA_RETRIEVER(IdealTopK, {.name = "ideal_topk", .title = "Ideal top-k", .summary = "...", .paper = "..."});

#include <memory>
#include <vector>

#include "harness/method/budget.h"
#include "harness/method/part_method.h"
#include "harness/method/registry.h"
#include "harness/method/selection.h"

namespace kvarena {

/// The entries that a step attends to in place of all.
struct Selection {
  /// Ascending indices into the layer's tail: one list a kv head, or one a query head. Empty: everything is attended.
  std::vector<std::vector<int32_t>> lists;
  /// Added to the logits of the listed entries: the log of how many each stands for. As `lists`; empty: none.
  std::vector<std::vector<float>> biases;
  /// Attended to beside the listed entries, in place of others; null: nothing.
  std::unique_ptr<Segment> stand_ins;
};

/// The entries that a step chooses from. Entries before `first` (sinks) and from `last` on (recent ones, generated ones
/// where they are no candidates, the query's own) are attended whatever is chosen.
struct Candidates {
  int64_t first = 0;
  int64_t last = 0;
  int64_t count = 0;      // to choose: the budget less what is attended anyway and counts in it; below last - first
  int64_t budget = 0;     // as the user wrote it
  bool generated = true;  // the newest entries are candidates, up to the protected ones

  [[nodiscard]] int64_t size() const { return last - first; }
};

/// Selects entries for each step. Its parameters are those beside the framework's: the budget of entries a step attends
/// to, `generated`, `dense_layers`. Its needs are the observations that start() reads.
class Retriever : public MethodPart {
 public:
  /// Defaults of the framework's parameters: first layers that attend to everything; whether entries made after the
  /// prompt are candidates of the selection ("candidates"), or always attended beside it ("attended").
  [[nodiscard]] virtual int64_t default_dense_layers() const { return 0; }
  [[nodiscard]] virtual const char* default_generated() const { return "candidates"; }
  /// Whether the user's budget says how many candidates a step attends to; otherwise select() decides, and `budget` is
  /// all there are.
  [[nodiscard]] virtual bool budgeted() const { return true; }
  /// Entries attended whatever their score, counted in a budget of `budget` entries; the newest one always is. Recent
  /// entries give way, then sinks, where they exceed it.
  [[nodiscard]] virtual Protection protect(int64_t /*budget*/) const { return {}; }

  /// An empty index for a layer; it is extended as entries arrive.
  [[nodiscard]] virtual std::unique_ptr<LayerIndex> make_index(const LayerShape& shape,
                                                               const LedgerPtr& ledger) const = 0;
  /// Reads into the index what it takes from the prompt as a whole; called once, before the first extend().
  virtual void start(LayerIndex& /*index*/, const LayerContext& /*layer*/, const LayerObservations& /*seen*/) const {}
  /// Brings the index up to date with entries [index.entries, end); the framework then counts them in. `end` stays at
  /// the prompt's length where generated entries are no candidates.
  virtual void extend(LayerIndex& /*index*/, const EntrySegment& /*entries*/, int64_t /*end*/) const {}
  /// The entries that a single query (queries.q_len == 1) attends to: about among.count of each head's candidates.
  /// Entries that are attended anyway may be listed too, and then have no bias.
  [[nodiscard]] virtual Selection select(const LayerIndex& index, const EntrySegment& entries,
                                         const LayerQueries& queries, const Candidates& among) const = 0;
  /// Whether select() gives biases or stand-ins, which the host attends to in a device's place.
  [[nodiscard]] virtual bool weighs() const { return false; }
  /// Called after the attention of a pass over the tail's newest queries.q_len entries, also where everything was
  /// attended.
  virtual void observe(LayerIndex& /*index*/, const EntrySegment& /*entries*/, const LayerQueries& /*queries*/) const {}
};

/// A budget given as a fraction is of the entries there are at each step, of the prompt's where generated ones are no
/// candidates: nothing is stored less, so nothing need be fixed by the prompt.
/// Passes with more than one query, steps whose candidates fit a budget, and layers with a sliding window attend to
/// everything.
class RetrievalMethod final : public PartMethod<Retriever> {
 public:
  explicit RetrievalMethod(std::unique_ptr<Retriever> retriever);

  void parameters(ParameterVisitor& p) override;
  void check(const std::string& place, std::vector<std::string>& problems) const override;
  [[nodiscard]] HookAccess reach() const override {
    return part_->weighs() ? HookAccess::attention : HookAccess::views;
  }
  void compress(LayerContext& layer, const LayerObservations& seen) const override;
  void select(LayerContext& layer, const LayerQueries& queries) const override;
  void observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const override;

 private:
  [[nodiscard]] bool attends_to_all(const LayerContext& layer) const;
  [[nodiscard]] Candidates candidates(const LayerContext& layer) const;
  void update_index(LayerContext& layer) const;

  Budget budget_;
  UserProtection protection_;
  std::string generated_;
  int64_t dense_layers_;
};

#define KVARENA_RETRIEVER(type, ...)                   \
  KVARENA_REGISTER(type, ::kvarena::Family::retrieval, \
                   std::make_unique<::kvarena::RetrievalMethod>(std::make_unique<type>()), __VA_ARGS__)

}  // namespace kvarena
