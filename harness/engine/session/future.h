#pragma once
// The attention that a prompt's entries will receive: full KV decodes on, and its queries are observed.

#include "harness/engine/session/prefill.h"

namespace kvarena {

/// Feeds what is known to follow the prompt, then at most `tokens` tokens decoded greedily, on a copy of the prompt's
/// full cache, stopping at the model's end of sequence, and writes LayerObservations::future_attention.
void observe_future(Transformer& model, Prefill& prompt, std::span<const int32_t> following, int64_t tokens);

/// The prompt as a session finds it that knows what will be asked: its future is that of this question. What methods
/// made of the prompt for other questions is not shared.
[[nodiscard]] Prefill with_future(Transformer& model, const Prefill& prompt, std::span<const int32_t> question,
                                  int64_t tokens);

}  // namespace kvarena
