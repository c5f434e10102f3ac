#pragma once
// Position recovery: entries computed at one position are brought to another. Rotations add, R(p + d) k = R(d) R(p) k,
// so stored keys are rotated by the distance alone.

#include "harness/model/transformer.h"

namespace kvarena {

/// Throws UserError when the keys of a prompt of `tokens` tokens are rotated by frequencies that depend on its length
/// (dynamic NTK or LongRoPE past the original window): then no rotation brings a shorter chunk's keys to their place.
void require_recoverable(const Transformer& model, int64_t tokens);

/// Appends all entries of `chunk`, which were computed from position 0 on, behind those of `cache`. At position 0 bits
/// stay; elsewhere keys are rotated in float32 and rounded to the stored type once more.
void append_recovered(const Transformer& model, const KvCache& chunk, KvCache& cache);

}  // namespace kvarena
