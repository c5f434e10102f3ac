#pragma once
// Attention of one sequence of a pass between a layer's projections: its entries go into the cache, and its queries
// attend.

#include <cstdint>

#include "harness/cache/entry_segment.h"
#include "harness/model/qkv_rows.h"
#include "harness/model/transformer.h"

namespace kvarena {

/// Description of a layer's queries for hooks and views. hidden [q_len, hidden_size]: the layer's attention input, for
/// hooks that want it.
[[nodiscard]] LayerQueries queries_of(const SequencePass& pass, const QkvRows& rows, const float* hidden);

/// Working memory and result of attend_sequence(), for q_len tokens.
struct AttentionMemory {
  float* attended = nullptr;  // [q_len, q_heads, head_dim of the cache]
  float* running = nullptr;   // [2, q_len, q_heads], running maxima and sums
  float* lse = nullptr;       // [q_len, q_heads], natural logarithm of the softmax denominators
};

/// Writes fresh entries at their positions, ascending: over old ones, or behind them where the cache ends.
void store_at(LayerCache& cache, const QkvRows& rows, std::span<const int32_t> positions);

/// Attends each row to the entries of `held` up to its own, at `places`, ascending.
void attend_at(const EntrySegment& held, std::span<const int32_t> places, const QkvRows& rows,
               const AttentionMemory& memory);

/// Appends to the layer's cache, or replaces entries of it, lets hooks select, attends, and lets hooks observe. `rows`
/// are those of the pass's tokens; `hidden` as in queries_of().
void attend_sequence(int64_t layer, const SequencePass& pass, const QkvRows& rows, const float* hidden,
                     const AttentionMemory& memory);

}  // namespace kvarena
