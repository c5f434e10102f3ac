#pragma once
// The attention that a prompt's entries will receive: full KV decodes on, and its queries are observed.

#include "harness/engine/session/prefill.h"

namespace kvarena {

/// Decodes at most `tokens` tokens greedily on a copy of the prompt's full cache, stopping at the model's end of
/// sequence, and writes LayerObservations::future_attention.
void observe_future(Transformer& model, Prefill& prompt, int64_t tokens);

}  // namespace kvarena
