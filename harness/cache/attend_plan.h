#pragma once
// The host's executor of attention plans: the one place where entries of a cache are attended to, summed over, and read
// as numbers.

#include "harness/cache/attention_plan.h"

namespace kvarena {

/// Folds the plan's items into `state` in order. `reader`, when not null, sees what the queries attend to in the last
/// item, which must be dense under Visibility::Rule::newest.
void attend(const AttentionPlan& plan, const kernels::AttentionState& state,
            kernels::AttentionReader* reader = nullptr);

/// sums[h * row_stride + i] += sum over queries t of exp(q[t,h].k[i] / sqrt(head_dim) - lse[t,h]) for each query head h
/// and column i of the plan's entries: with lse [q_len, q_heads] of the whole layer these are attention probabilities.
void add_probabilities(const AttentionPlan& plan, const float* lse, float* sums, int64_t row_stride);

/// Writes the entries of `kv_head` as float, [columns, head_dim] each; either may be null. Items under one column are
/// written in order.
void read(const AttentionPlan& plan, int64_t kv_head, float* keys, float* values);

/// Computes probabilities in the executor's place from a copy of a segment's entries elsewhere, on a device. Lent to
/// the segment by whoever keeps the copy, for as long as both are alike (CacheMirror).
class EntryMirror {
 public:
  virtual ~EntryMirror() = default;
  /// add_probabilities() of one item without steps, under `all` or `newest`; queries are under its key transform, a
  /// column of `sums` is a place in its list. False where it cannot say; then nothing was added.
  [[nodiscard]] virtual bool add_probabilities(const AttentionItem& item, const LayerQueries& queries, const float* lse,
                                               float* sums, int64_t row_stride) = 0;
};

}  // namespace kvarena
