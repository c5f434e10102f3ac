#pragma once
// Projections before and after the state of a recurrent layer: from hidden states to the rows that a RecurrentState
// takes, and from what it gives back to the residual stream.

#include "harness/cache/recurrent_state.h"
#include "harness/model/activations.h"
#include "harness/model/config.h"
#include "harness/model/weights.h"

namespace kvarena {

/// Sizes of such a layer's state. `weights` must outlive it.
[[nodiscard]] RecurrentShape state_shape(const ModelConfig& config, const DeltaRule& weights);

/// Rows for RecurrentState::advance() from `in` [R, hidden_size], at a distance of weights.in.out(); valid until
/// the next layer.
[[nodiscard]] const float* delta_input(const DeltaRule& weights, const ModelConfig& config, const float* in,
                                       Activations& a);

/// Normalises what the heads read of their states, `read` [R, v_heads, v_dim], multiplies it by the gates that came
/// with the last delta_input(), and projects it to out [R, hidden_size].
void delta_output(const DeltaRule& weights, const ModelConfig& config, float* read, float* out, Activations& a);

}  // namespace kvarena
