#pragma once
// What one sequence of a pass does between a layer's projections: its entries go into the cache, and its queries
// attend.

#include <cstdint>

#include "harness/model/attention_rows.h"
#include "harness/model/transformer.h"

namespace kvarena {

/// Where that is done and kept, for q_len tokens.
struct AttentionMemory {
  float* attended = nullptr;  // [q_len, q_heads, head_dim of the cache]
  float* running = nullptr;   // [2, q_len, q_heads], maxima and sums while it attends
  float* lse = nullptr;       // [q_len, q_heads], natural logarithm of the softmax denominators
};

/// `rows`: of the pass's tokens. hidden [q_len, hidden_size]: the layer's attention input, for hooks that want it.
/// Appends to the layer's cache, lets hooks select, attends, and lets hooks observe.
void attend_sequence(int64_t layer, const SequencePass& pass, const AttentionRows& rows, const float* hidden,
                     const AttentionMemory& memory);

}  // namespace kvarena
