#pragma once
// What one sequence of a pass does between a layer's projections: its entries go into the cache, and its queries
// attend.

#include <cstdint>

#include "harness/model/qkv_rows.h"
#include "harness/model/transformer.h"

namespace kvarena {

/// What hooks and views are told of a layer's queries. hidden [q_len, hidden_size]: the layer's attention input, passed
/// on to hooks that want it.
[[nodiscard]] LayerQueries queries_of(const SequencePass& pass, const QkvRows& rows, const float* hidden);

/// Where that is done and kept, for q_len tokens.
struct AttentionMemory {
  float* attended = nullptr;  // [q_len, q_heads, head_dim of the cache]
  float* running = nullptr;   // [2, q_len, q_heads], maxima and sums while it attends
  float* lse = nullptr;       // [q_len, q_heads], natural logarithm of the softmax denominators
};

/// `rows`: of the pass's tokens; hidden as queries_of() takes it. Appends to the layer's cache, lets hooks select,
/// attends, and lets hooks observe.
void attend_sequence(int64_t layer, const SequencePass& pass, const QkvRows& rows, const float* hidden,
                     const AttentionMemory& memory);

}  // namespace kvarena
