#pragma once
// The pass of an adapter's own tokens behind a prompt (Needs::restorations).

#include <string>

#include "harness/engine/session/prefill.h"

namespace kvarena {

/// Reads the tokens that the adapter in a folder adds to the vocabulary, once and in their order, behind the prompt's
/// full cache under the adapted model, and adds their entries to the observations. Throws UserError when there is no
/// such adapter for this model.
void observe_restoration(Transformer& model, Prefill& prompt, const std::string& adapter);

}  // namespace kvarena
