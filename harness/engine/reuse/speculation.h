#pragma once
// A smaller model reads the prompt ahead of the target, so that a reuser can tell which tokens matter.

#include "harness/engine/reuse/prompt_layout.h"
#include "harness/method/reuser.h"
#include "harness/model/transformer.h"

namespace kvarena {

/// Runs the speculative model over the whole prompt and notes the norms of its residual stream. A checkpoint of its own
/// reads the layout's text by its own tokenizer; without a text, and where the target itself is that model, tokens are
/// the target's and range i of both sides is [i, i+1). The target holds the checkpoint (Transformer::helper). Throws
/// UserError when it is absent, when its window is too short, or when it has another vocabulary and there is no text.
[[nodiscard]] Speculation speculate(Transformer& target, std::span<const int32_t> tokens, const PromptLayout& layout,
                                    const SpeculativeModel& speculative);

}  // namespace kvarena
