#pragma once
// Observations behind a prompt's own passes: the prompt repeated over its own cache (Reconstruction in
// harness/method/method.h), and the weights of the output projection.

#include "harness/engine/session/prefill.h"

namespace kvarena {

/// Runs the extra passes of `what` on a copy of the prompt's full cache, `piece` tokens at a time, and adds their
/// scores to the observations. Without text facts a chunk is repeated without an instruction in front of it. Throws
/// UserError when the window has no room for the longest repetition behind the prompt.
void observe_reconstruction(Transformer& model, Prefill& prompt, const Reconstruction& what, int64_t piece);

/// Lets methods read the output projection of every layer; the model must outlive that.
void observe_output_projection(Transformer& model, Prefill& prompt);

}  // namespace kvarena
