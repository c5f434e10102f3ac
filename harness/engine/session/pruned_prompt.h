#pragma once
// A prompt that gets shorter from layer to layer (harness/method/pruner.h).

#include <vector>

#include "harness/engine/session/prefill.h"
#include "harness/method/method.h"
#include "harness/method/pruner.h"

namespace kvarena {

struct PrunedPrompt {
  KvCache cache;              // of each layer the entries of the tokens that it computed
  std::vector<float> logits;  // [vocab_size], of the first new token
  double seconds = 0;
};

/// Reads the prompt's tokens again, without those that the method prunes, and lets the method begin its memory of the
/// layers. Throws UserError as prefill() does, and when the model's layers see a window that the prompt outgrows:
/// entries of a pruned layer have no place in it.
[[nodiscard]] PrunedPrompt prune_prompt(Transformer& model, const Prefill& prompt, const Method& method,
                                        Activity& activity);

}  // namespace kvarena
