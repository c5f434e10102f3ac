#pragma once
// How good a method's selections are: what its decode passes attend to, beside what they would have attended to had
// nothing been left out, and what changes from step to step.

#include <algorithm>
#include <span>
#include <vector>

#include "harness/engine/session/forwarding_hooks.h"

namespace kvarena {

/// One decode step.
struct SelectionStep {
  double hit_rate = 1;  // share of exact attention that falls on attended entries, mean over layers and query heads
  double overlap = 0;   // see SelectionMeter; NaN where no layer selected
  int64_t loaded_bytes = 0;  // see SelectionMeter
  double attended = 0;       // entries of a kv head that any of its query heads attends to, exact or packed; mean
};

/// Stands between a pass and its method's hooks. Exact attention is that of the method's own queries over every entry
/// so far, dropped ones included: the meter keeps the full keys beside the method's cache, those of the prompt in
/// memory that it shares with the prompt's cache. Costs one more attention a step.
///
/// Where exact entries take the place of packed ones (OverlayView), attended are those that are seen exactly.
///
/// Overlap and bytes are of the entries of a kv head that any of its query heads attends to, in layers that select.
/// Overlap: of those that were there a step before, the share that was attended then too, mean over heads. Bytes: keys
/// and values of those that were not attended a step before; of the first step all, but for the query's own entry. A
/// layer that attends to everything loads nothing, unless it selected a step before.
class SelectionMeter final : public ForwardingHooks {
 public:
  using Lists = std::vector<std::vector<int32_t>>;  // ascending positions

  /// `prompt`: the full cache of the prompt.
  explicit SelectionMeter(const KvCache& prompt);
  /// Stands before a method's hooks, which must outlive the passes, and returns the hooks of these passes. Called once,
  /// before the first pass.
  AttentionHooks& watch(AttentionHooks& method) {
    forward_to(&method);
    return *this;
  }

  /// Measurements so far.
  struct Measured {
    std::vector<Lists> last;         // [layers][kv_heads], empty where everything was attended
    std::vector<double> layer_sums;  // [layers], of hit rates over steps
    std::vector<SelectionStep> steps;
    bool selected = false;
  };
  [[nodiscard]] const Measured& measured() const { return so_far_; }
  /// Forgets what was measured since: the next pass is of an earlier position.
  void go_back(Measured then) { so_far_ = std::move(then); }

  /// `count` tokens joined the request outside the passes that are watched: their entries are those of `full` from
  /// position `before` on.
  void follow(const KvCache& full, int64_t before, int64_t count);

  [[nodiscard]] HookAccess reach() const override { return std::max(HookAccess::rows, ForwardingHooks::reach()); }
  void before_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries) override;
  void after_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries, const float* lse) override;

  [[nodiscard]] const std::vector<SelectionStep>& steps() const { return so_far_.steps; }
  /// Whether any layer selected at any step.
  [[nodiscard]] bool selected() const { return so_far_.selected; }
  /// Share of exact attention a layer covered, mean over steps and query heads.
  [[nodiscard]] std::vector<double> layer_hit_rates() const;

 private:
  /// Attended positions of every query head; empty when nothing is left out.
  [[nodiscard]] static Lists attended(const LayerCache& cache, const AttentionPlan& plan, int64_t all);
  [[nodiscard]] double covered(int64_t layer, const LayerQueries& first, const Lists& attended);
  void append_newest(int64_t layer, const LayerCache& cache, const LayerQueries& queries);
  void note_selection(int64_t layer, const LayerShape& shape, Lists now, int64_t position);

  LedgerPtr ledger_ = std::make_shared<MemoryLedger>();  // the meter's memory is not the request's
  std::vector<LayerCache> full_;                         // [layers]
  Measured so_far_;
  SelectionStep step_;    // in work, sums over layers and heads
  int64_t overlaps_ = 0;  // heads that step_.overlap sums over
};

}  // namespace kvarena
