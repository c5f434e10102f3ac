#pragma once
// Dropping: a plugin says how important entries are; the framework keeps the best within the budget.
//
//   class Knorm final : public Scorer {
//    public:
//     at::Tensor score(const LayerView& layer) const override { return layer.keys().norm(2, -1).neg(); }
//   };
//   KVARENA_SCORER(Knorm, {.name = "knorm", .title = "L2 norm", .summary = "...", .paper = "arXiv:2406.11430"});

#include <limits>
#include <memory>
#include <optional>

#include "harness/core/nested.h"
#include "harness/method/budget.h"
#include "harness/method/budget_rule.h"
#include "harness/method/layer_view.h"
#include "harness/method/merging.h"
#include "harness/method/part_method.h"
#include "harness/method/registry.h"
#include "harness/method/selection.h"

namespace kvarena {

/// The attention of one decode query in one layer.
struct StepAttention {
  EntrySegment* entries = nullptr;  // its own entry among them, last of each head
  /// [q_heads][entries of its kv head], probabilities; empty unless Needs::step_attention.
  std::vector<std::vector<float>> attention;
  std::vector<float> lse;  // [q_heads], logarithms of the softmax denominators; empty unless Needs::step_attention
  int64_t layer = 0;
  int64_t position = 0;           // of the query
  int64_t prompt_tokens = 0;      // the prompt's length
  int32_t token = 0;              // the query's
  int64_t unseen = 0;             // newest entries of every head, which belong to later queries
  const float* hidden = nullptr;  // [hidden_size], the query's attention input; null unless Needs::step_hidden
  const ModelFacts* model = nullptr;

  [[nodiscard]] int64_t group() const { return entries->shape().group(); }
};

/// The budget that protection is asked for where a threshold decides.
inline constexpr int64_t kNoBudget = std::numeric_limits<int64_t>::max() / 2;

/// Scores entries. Its parameters are those beside the budget, which the framework declares.
class Scorer : public MethodPart {
 public:
  /// The scorer of a dropping method with these settings, which have no budget ({"name": "snapkv", "window": 32}). Adds
  /// every problem as a finished message that starts with `place`; null when there is no such scorer.
  [[nodiscard]] static std::unique_ptr<Scorer> build(const nlohmann::json& settings, const std::string& place,
                                                     std::vector<std::string>& problems);

  /// Importance of every entry, [kv_heads, n] float32; larger is kept, ties keep the lower index. Must not depend on
  /// state outside `layer`. NaN is an error that names the method and the layer.
  [[nodiscard]] virtual at::Tensor score(const LayerView& layer) const = 0;

  /// Entries kept whatever their score, of a budget of `budget` entries; kNoBudget under a threshold. When both
  /// together exceed the budget, recent entries give way, then sinks.
  [[nodiscard]] virtual Protection protect(int64_t /*budget*/) const { return {}; }

  /// The last word over the heads of `view` (scores and budgets have a row for each) once the rule has divided the
  /// budget: a second ranking within it, whole chunks. Most have none.
  virtual void refine(const LayerView& /*view*/, LayerScores& /*scores*/, HeadBudgets& /*budgets*/) const {}

  /// Entries of every head that add_entries() puts beside those of the prompt, within the budget.
  [[nodiscard]] virtual int64_t added_entries(const LayerObservations& /*seen*/) const { return 0; }
  /// Puts them in front of the tail once the others left.
  virtual void add_entries(LayerContext& /*layer*/, const LayerObservations& /*seen*/) const {}

  /// false: the scorer itself decides how many entries stay (a threshold, a policy a head). No budget is declared,
  /// budgets come as the number of entries held, and refine() lowers them.
  [[nodiscard]] virtual bool budgeted() const { return true; }
  /// The rule that divides the budget unless the user names another, as JSON.
  [[nodiscard]] virtual std::string default_rule() const { return R"({"name":"uniform"})"; }

  /// Whether entries are also evicted while decoding, back to the budgets that each head had at the end of the prompt.
  [[nodiscard]] virtual bool evicts_while_decoding() const { return false; }
  /// The `decode_interval` unless the user names another.
  [[nodiscard]] virtual std::optional<int64_t> default_interval() const { return {}; }

  /// Numbers remembered with every entry while decoding; they travel with it and are counted as memory. New entries
  /// start at 0.
  [[nodiscard]] virtual int64_t score_width() const { return needs().step_attention ? 1 : 0; }
  /// Numbers that the prompt's entries start with, [kv_heads, n, score_width]: the attention each received from all
  /// prompt queries, summed over its group, unless overridden.
  [[nodiscard]] virtual at::Tensor remember_prompt(const LayerView& layer) const;
  /// Updates the numbers with a decode step, before eviction, when Needs::step_attention or Needs::step_hidden: adds
  /// the step's attention, summed over the group, unless overridden.
  virtual void observe(const StepAttention& step) const;
};

/// Entries kept of one layer: ascending indices for each kv head.
using KeptEntries = std::vector<std::vector<int32_t>>;

struct DroppingState;

/// A scorer with a budget: after the prompt each head of each layer keeps its best entries; the others' memory is
/// released. The prompt may be compressed piece by piece, and the cache from time to time while decoding.
class DroppingMethod final : public PartMethod<Scorer> {
 public:
  explicit DroppingMethod(std::string name, std::unique_ptr<Scorer> scorer);

  void parameters(ParameterVisitor& p) override;
  void check(const std::string& place, std::vector<std::string>& problems) const override;
  [[nodiscard]] Needs needs() const override;
  void compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> seen) const override;
  [[nodiscard]] bool compresses_by_layer() const override { return rule_->by_layer(); }
  void observe(LayerContext& layer, const LayerQueries& queries, const float* lse) const override;
  void after_append(LayerContext& layer) const override;
  [[nodiscard]] bool only_compresses() const override { return !acts_while_decoding(); }
  /// Rows suffice where entries only leave: copies on a device drop them too. Keys that are rotated anew are other
  /// entries.
  [[nodiscard]] HookAccess reach() const override {
    if (only_compresses()) return HookAccess::nothing;
    return positions_ == "orig" ? HookAccess::rows : HookAccess::attention;
  }

  /// Gives the scorer away, for a method that wraps it.
  [[nodiscard]] std::unique_ptr<Scorer> take_scorer() { return std::move(part_); }
  [[nodiscard]] Scorer& scorer() { return *part_; }

 private:
  /// Parts of a prompt's layers that are compressed by themselves; null: all of it.
  using Parts = const std::vector<KeptEntries>*;

  /// Whether a budget says how many entries stay, not a threshold or the scorer itself.
  [[nodiscard]] bool limited() const { return part_->budgeted() && !threshold_; }
  [[nodiscard]] bool unlimited() const { return limited() && budget_.unlimited(); }
  [[nodiscard]] bool remembers() const { return part_->score_width() > 0 && !unlimited(); }
  [[nodiscard]] bool acts_while_decoding() const { return part_->evicts_while_decoding() || decode_interval_; }
  [[nodiscard]] double share_of(const LayerContext& layer) const;
  /// Keeps these, counts what went, and renumbers positions when asked to. `state` is null where there is no budget.
  void drop_others(LayerContext& layer, const KeptEntries& kept, DroppingState* state) const;
  /// The scorer whose scores count while decoding.
  [[nodiscard]] const Scorer& decode_scorer() const { return decode_scorer_ ? *decode_scorer_ : *part_; }
  /// Fills in what query `t` attended to.
  void attend(StepAttention& step, const LayerQueries& queries, int64_t t, const float* lse) const;
  void start_remembering(LayerContext& layer, const LayerView& view) const;

  [[nodiscard]] LayerScores score(const Scorer& scorer, const std::vector<LayerView>& views, double share) const;
  [[nodiscard]] KeptEntries best(const Scorer& scorer, const std::vector<LayerView>& views, LayerScores scores,
                                 HeadBudgets budgets) const;
  [[nodiscard]] std::vector<KeptEntries> choose(std::span<LayerContext> layers, std::span<const LayerObservations> seen,
                                                double share, Parts parts, std::vector<HeadBudgets>& budgets) const;
  [[nodiscard]] std::vector<KeptEntries> by_chunks(std::span<LayerContext> layers,
                                                   std::span<const LayerObservations> seen, double share,
                                                   std::vector<HeadBudgets>& budgets) const;
  [[nodiscard]] std::vector<KeptEntries> whole_prompt(std::span<LayerContext> layers, double share,
                                                      std::vector<HeadBudgets>& budgets) const;
  [[nodiscard]] std::vector<KeptEntries> by_blocks(std::span<LayerContext> layers,
                                                   std::span<const LayerObservations> seen, double share,
                                                   std::vector<HeadBudgets>& budgets) const;
  /// First entries that scorers do not see while decoding, because they stay.
  [[nodiscard]] int64_t protected_prompt(const LayerContext& layer) const {
    return protect_prompt_ ? layer.prompt_tokens : 0;
  }
  /// Entries that a head keeps of `count` that were seen while decoding, before the rule's shares; none: as many as of
  /// the prompt.
  [[nodiscard]] std::optional<int64_t> decode_target(int64_t count) const;
  /// Evicts while decoding, down to these numbers of entries.
  void evict(LayerContext& layer, const LayerObservations* newest, double share, HeadBudgets budgets) const;
  void compress_interval(LayerContext& layer) const;

  std::string name_;
  Budget budget_;
  std::optional<double> threshold_;
  UserProtection protection_;
  bool protect_prompt_ = false;  // all of it; the budget is then that of generated entries
  Nested<BudgetRule> rule_;
  Merging merging_;
  std::optional<int64_t> prefill_chunk_;
  std::optional<int64_t> prefill_block_;
  std::optional<int64_t> decode_interval_;
  std::optional<int64_t> decode_tokens_;
  std::optional<double> decode_keep_;
  Nested<Scorer> decode_scorer_;
  std::string positions_ = "orig";
};

#define KVARENA_SCORER(type, ...)                                                                                      \
  KVARENA_REGISTER(                                                                                                    \
      type, ::kvarena::Family::compression,                                                                            \
      std::make_unique<::kvarena::DroppingMethod>((::kvarena::MethodInfo __VA_ARGS__).name, std::make_unique<type>()), \
      __VA_ARGS__)

}  // namespace kvarena
