#pragma once
// A prompt's cache as a method leaves it.

#include "harness/engine/prefill.h"
#include "harness/method/method.h"

namespace kvarena {

/// A clone of the prompt's cache, compressed by `method`. Throws UserError when the prompt was observed
/// without what the method needs.
[[nodiscard]] KvCache compress_prompt(const Prefill& prompt, const Method& method, Activity& activity);

}  // namespace kvarena
